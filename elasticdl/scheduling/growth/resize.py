"""Changing the size of one job: which instances go, and where new ones are placed.

Workers that synchronise sit on one machine or on whole machines. Growing to whole machines may need a machine to be
cleared: small jobs on it move to other machines, which costs each of them a resize; the caller weighs that.
"""

from __future__ import annotations

import numpy as np

from elasticdl.scheduling.inventory import Spots, count_fits
from elasticdl.scheduling.workspace import Run, Workspace


def shrink_to(work: Workspace, run: Run, size: int) -> None:
    """Releases instances down to a size: on machines that are about to go or may be taken away, then where the fewest
    of the job's own are, so that machines become empty again.
    """
    spots = run.spots[run.role]
    extra = run.size - size
    rank = work.inventory.release_rank
    order = sorted(spots, key=lambda machine: (-int(rank[machine]), spots[machine], -machine))
    released: Spots = {}
    for machine in order:
        count = min(extra, spots[machine])
        if count > 0:
            released[machine] = count
            extra -= count
    work.release(run, run.role, released)


def resize_whole(work: Workspace, run: Run, size: int, *, clear: dict[int, list[Run]] | None = None) -> bool:
    """Places a job at a size on one machine or on whole ones; False leaves it as it was.

    `clear`: small jobs by machine that may be moved to make a machine whole.
    """
    held = dict(run.spots[run.role])
    work.release(run, run.role, held)
    spots = _find(work, run, size, held)
    if spots is None and clear is not None and size >= run.per_machine:
        spots = _clear_machines(work, run, size, held, clear)
    if spots is None:
        work.place(run, run.role, held)
        return False
    work.place(run, run.role, spots)
    return True


def _find(work: Workspace, run: Run, size: int, held: Spots) -> Spots | None:
    inventory = work.inventory
    per = run.per_machine
    prefer = held or run.base.get(run.role, {})
    if size < per:
        room = inventory.fits(run.request, run.mask)
        fitting = np.flatnonzero(room >= size)
        if not len(fitting):
            return None
        in_place = [
            machine for machine in sorted(prefer, key=lambda m: (-prefer[m], m)) if room[machine] >= size
        ]
        best = in_place[0] if in_place else int(fitting[np.lexsort((fitting, room[fitting]))[0]])
        return {best: size}
    machines, rest = divmod(size, per)
    if rest:
        return inventory.pack(run.request, run.mask, size, prefer=sorted(prefer))
    return inventory.pack_whole(run.request, run.mask, per, machines, prefer=prefer)


def _clear_machines(
    work: Workspace, run: Run, size: int, held: Spots, clear: dict[int, list[Run]]
) -> Spots | None:
    """Moves small jobs off machines until enough are whole. Needs an open transaction; undone if it fails."""
    inventory = work.inventory
    per = run.per_machine
    needed = -(-size // per)
    mark = work.mark
    room = inventory.fits(run.request, run.mask).copy()
    whole = set(np.flatnonzero(room >= per).tolist())
    capacity = count_fits(inventory.allocatable, run.request, run.mask)
    candidates = [m for m in clear if run.mask[m] and capacity[m] >= per and m not in whole and room[m] > 0]
    candidates.sort(key=lambda machine: (-int(room[machine]), len(clear[machine]), machine))
    keep = set(whole)
    for machine in candidates:
        if len(keep) >= needed:
            break
        if _evacuate(work, machine, clear, keep | {machine}):
            now = inventory.fits(run.request, run.mask)
            if now[machine] >= per:
                keep.add(machine)
    if len(keep) < needed:
        work.roll_back_to(mark)
        return None
    return inventory.pack_whole(run.request, run.mask, per, needed, prefer=held)


def _evacuate(work: Workspace, machine: int, clear: dict[int, list[Run]], avoid: set[int]) -> bool:
    mark = work.mark
    moved: list[tuple[Run, int]] = []
    for tenant in sorted(clear[machine], key=lambda run: (-run.size, run.key)):
        spots = tenant.spots[tenant.role]
        if machine not in spots:
            continue
        if set(spots) != {machine} or tenant.size >= tenant.per_machine:
            work.roll_back_to(mark)
            return False
        size = tenant.size
        work.release(tenant, tenant.role, dict(spots))
        room = work.inventory.fits(tenant.request, tenant.mask).copy()
        room[list(avoid)] = 0
        fitting = np.flatnonzero(room >= size)
        if not len(fitting):
            work.roll_back_to(mark)
            return False
        target = int(fitting[np.lexsort((fitting, room[fitting]))[0]])
        work.place(tenant, tenant.role, {target: size})
        moved.append((tenant, target))
    for tenant, target in moved:
        clear.setdefault(target, []).append(tenant)
    return True
