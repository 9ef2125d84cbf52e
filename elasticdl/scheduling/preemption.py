"""Making room: jobs shrink first, and only then does a job of lower priority stop.

A claim is a pod that fits nowhere: of a waiting job, or of anyone else. Room is made on exactly the machines where a
release lets the pod fit; among the jobs that may release, the one that loses least goes first, and never below its
minimum. If all of that is not enough, jobs of strictly lower priority stop entirely, lowest priority and youngest
first; those whose stop did not help in the end are put back where they were.

Failure modes: `make_room` and `preempt_for` return False and leave partial changes to the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from elasticdl.scheduling.inventory import Ints, Mask, count_fits
from elasticdl.scheduling.workspace import Run, Workspace

Donors = Callable[[Run], bool]
# Releases on one machine that are considered to make room for several pods at once.
_MOST_RELEASES = 8


def make_room(
    work: Workspace, request: Ints, mask: Mask, may_release: Donors, *, wanted: int = 1
) -> int | None:
    """Shrinks jobs until one pod fits; returns the machine where it does, None if shrinking cannot help.

    `wanted`: how many such pods need room, so that releases that make room for several of them are preferred.
    """
    donors = [run for run in work.runs.values() if run.surplus > 0 and may_release(run)]
    donors.sort(key=lambda run: (run.priority, run.loss(step_down(run)), run.key))
    for run in donors:
        machine = release_for(work, run, request, mask, most=run.surplus, wanted=wanted)
        if machine is not None:
            return machine
    return _release_several(work, donors, request, mask)


def step_down(run: Run) -> int:
    """Returns how many instances a job releases at least: one, or a whole machine for one that spans several."""
    if run.whole_machines and 0 < run.per_machine < run.size:
        return max(1, min(run.per_machine, run.surplus))
    return 1


def release_for(
    work: Workspace, run: Run, request: Ints, mask: Mask, *, most: int, wanted: int = 1
) -> int | None:
    """Releases at most `most` instances of one job on one machine, so that a pod fits there; returns the machine.

    Preferred: the fewest releases per pod that fits (of `wanted`), then machines that may be taken away, then the least
    that would be left over if the machine were filled with such pods. Two trainers of 5 CPUs give way to three servers
    of 4 on a machine of 12 CPUs, instead of one trainer to one server with a hole beside it.
    """
    spots = run.spots[run.role]
    rows = np.array([machine for machine in spots if mask[machine]], dtype=np.int64)
    if not len(rows):
        return None
    rows.sort()
    held = np.minimum(np.array([spots[machine] for machine in rows.tolist()]), most)
    free = work.inventory.free[rows]
    main = work.inventory.main_resource(request)
    everywhere = np.ones(len(rows), dtype=bool)
    rank = work.inventory.release_rank[rows]
    best: tuple[float, int, int, int, int] | None = None
    for count in range(1, int(held.max()) + 1):
        room = free + run.request * count
        fits = np.where(held >= count, np.minimum(count_fits(room, request, everywhere), wanted), 0)
        for index in np.flatnonzero(fits > 0).tolist():
            left = int(room[index, main]) % max(int(request[main]), 1)
            option = (count / int(fits[index]), -int(rank[index]), left, count, int(rows[index]))
            if best is None or option < best:
                best = option
        if best is not None and (wanted == 1 or count >= _MOST_RELEASES):
            break
    if best is None:
        return None
    *_, count, machine = best
    release_on(work, run, machine, count, most=most)
    return machine


def release_on(work: Workspace, run: Run, machine: int, count: int, *, most: int) -> None:
    """Releases `count` instances on one machine; all of them, up to `most`, where sizes are whole machines."""
    spots = run.spots[run.role]
    if run.whole_machines and run.per_machine > 0 and len(spots) > 1:
        count = max(count, min(spots[machine], most))
    work.release(run, run.role, {machine: count})


def _release_several(work: Workspace, donors: list[Run], request: Ints, mask: Mask) -> int | None:
    """Several jobs release on the same machine."""
    if len(donors) < 2:
        return None
    free = work.inventory.free
    possible = free.copy()
    on_machine: dict[int, list[Run]] = {}
    for run in donors:
        for machine, count in run.spots[run.role].items():
            possible[machine] += run.request * min(count, run.surplus)
            on_machine.setdefault(machine, []).append(run)
    fits = mask & (possible >= request).all(axis=1)
    candidates = [int(machine) for machine in np.flatnonzero(fits) if int(machine) in on_machine]
    best: tuple[float, int, list[tuple[Run, int]]] | None = None
    # The machines with the most room need the fewest releases; a bounded number of them is tried.
    candidates.sort(key=lambda machine: (-work.inventory.least_left(possible[machine] - request), machine))
    for machine in candidates[:64]:
        releases: list[tuple[Run, int]] = []
        left = free[machine].copy()
        loss = 0.0
        for run in on_machine[machine]:
            count = 0
            while (left < request).any() and count < min(run.spots[run.role][machine], run.surplus):
                count += 1
                left = left + run.request
            if count:
                releases.append((run, count))
                loss += run.loss(count)
        if (left >= request).all() and (best is None or loss < best[0]):
            best = (loss, machine, releases)
    if best is None:
        return None
    for run, count in best[2]:
        release_on(work, run, best[1], count, most=run.surplus)
    return best[1]


def preempt_for(work: Workspace, priority: int, fits: Callable[[], bool]) -> bool:
    """Stops jobs of lower priority until `fits` succeeds; returns whether it did. Needs an open transaction.

    `fits` tries to place the claim and leaves it placed if it succeeds.
    """
    stopped: list[tuple[Run, dict[str, dict[int, int]]]] = []
    victims = [run for run in work.runs.values() if run.is_running and run.priority < priority]
    victims.sort(key=lambda run: (run.priority, -run.job.submitted_at_seconds, run.key))
    success = False
    for run in victims:
        stopped.append((run, {role: dict(spots) for role, spots in run.spots.items()}))
        work.release_all(run)
        run.is_running = False
        if fits():
            success = True
            break
    if not success:
        for run, _ in stopped:
            run.is_running = True
        return False
    for run, spots in reversed(stopped):
        _put_back(work, run, spots)
    return True


def _put_back(work: Workspace, run: Run, spots: dict[str, dict[int, int]]) -> None:
    """Restores a stopped job where it was, at its minimum, if that is still free."""
    kept = {role: dict(where) for role, where in spots.items()}
    extra = sum(kept[run.role].values()) - run.minimum
    rank = work.inventory.release_rank
    for machine in sorted(
        kept[run.role], key=lambda machine: (-int(rank[machine]), kept[run.role][machine], machine)
    ):
        count = min(extra, kept[run.role][machine])
        kept[run.role][machine] -= count
        extra -= count
    mark = work.mark
    for role, where in kept.items():
        wanted = {machine: count for machine, count in where.items() if count > 0}
        request = run.requests[role]
        asked = request > 0
        if any(
            (work.inventory.free[machine] < request * count)[asked].any() for machine, count in wanted.items()
        ):
            work.roll_back_to(mark)
            return
        work.place(run, role, wanted)
    run.is_running = True
