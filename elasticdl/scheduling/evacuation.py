"""Evacuation: elastic instances leave machines that are about to be removed, before they are evicted.

An instance that leaves in time finishes its batch, and its replacement starts elsewhere meanwhile. Where no other
machine has room, the job shrinks down to its minimum; below it, instances stay until they are evicted, as the job would
have to stop without them. Cordoned machines are not evacuated: a cordon keeps new pods away and does not affect running
ones.

Role groups of fixed size stay, too: nothing drains a parameter server or a master before its machine is gone.
"""

from __future__ import annotations

from elasticdl.scheduling.growth.resize import resize_whole
from elasticdl.scheduling.growth.target_sizes import candidate_sizes
from elasticdl.scheduling.inventory import Spots
from elasticdl.scheduling.workspace import Run, Workspace


def evacuate(work: Workspace) -> bool:
    """Moves instances off draining machines, or releases them; returns whether anything changed."""
    draining = work.inventory.is_draining
    if not draining.any():
        return False
    changed = False
    for run in work.runs.values():
        leaving = {machine: count for machine, count in run.spots[run.role].items() if draining[machine]}
        if not run.is_running or not leaving:
            continue
        before = dict(run.spots[run.role])
        if run.whole_machines and run.per_machine > 0:
            _move_whole(work, run)
        else:
            _move_single(work, run, leaving)
        if run.spots[run.role] != before:
            changed = True
            names = ", ".join(work.inventory.names[machine] for machine in sorted(leaving))
            run.note = run.note or f"{names} is about to be removed"
    return changed


def _move_single(work: Workspace, run: Run, leaving: Spots) -> None:
    count = sum(leaving.values())
    work.release(run, run.role, leaving)
    prefer = sorted(run.spots[run.role])
    found = work.inventory.pack(run.request, run.mask, count, prefer=prefer, partial=True) or {}
    if found:
        work.place(run, run.role, found)
    missing = run.minimum - run.size
    for machine in sorted(leaving):
        stay = min(missing, leaving[machine])
        if stay > 0:
            work.place(run, run.role, {machine: stay})
            missing -= stay


def _move_whole(work: Workspace, run: Run) -> None:
    sizes = candidate_sizes(max(run.minimum, 1), run.size, run.per_machine, whole_machines=True)
    for size in sizes[::-1].tolist():
        if resize_whole(work, run, size):
            return
