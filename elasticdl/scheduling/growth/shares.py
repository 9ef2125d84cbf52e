"""Weighted max–min fair shares: growth of jobs whose speed is not known.

The level of a job is the dominant share of its elastic instances divided by its weight. Free capacity raises the lowest
levels first (water filling); then a job below others takes single instances from those above it, on machines where
that lets its own instance fit. A transfer is made only if the receiver ends at or below the level at which the giver
ends, so it never swings back, and whole-number shares settle at once.

Workers that synchronise grow on one machine or by whole machines first. That is a preference: what is still free after
that goes to them in single instances, lowest level first, so that no device stays idle because the instances of a job
are spread over machines (the scheduler of a cluster spreads pods, whatever the plan says).

Jobs of higher priority grow first and may take all that jobs of lower priority have above their minimum.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduling.growth.resize import resize_whole
from elasticdl.scheduling.growth.target_sizes import candidate_sizes
from elasticdl.scheduling.inventory import Ints
from elasticdl.scheduling.preemption import release_for
from elasticdl.scheduling.workspace import Run, Workspace


class LoadLimit:
    """The unused amount of each resource below the load target."""

    def __init__(self, work: Workspace, max_load: float) -> None:
        self._work = work
        self._max_load = max_load
        self._open = work.inventory.is_open

    def room(self, request: Ints, wanted: int) -> int:
        if self._max_load >= 1.0 or wanted <= 0:
            return wanted
        inventory = self._work.inventory
        target = np.floor(inventory.totals * self._max_load + 1e-6).astype(np.int64)
        left = target - (inventory.totals - inventory.free[self._open].sum(axis=0))
        asked = np.flatnonzero(request)
        if not len(asked):
            return wanted
        return max(0, min(wanted, int((left[asked] // request[asked]).min())))


def allowed(work: Workspace, limit: LoadLimit, run: Run, wanted: int) -> int:
    """Returns how many of `wanted` more instances the quota and the load target allow."""
    return limit.room(run.request, work.quotas.room(run.job.namespace, run.request, wanted))


def fill_fair_shares(work: Workspace, runs: list[Run], limit: LoadLimit) -> bool:
    """Grows jobs into free capacity, lowest level first; returns whether anything changed."""
    changed = _raise_levels(work, runs, limit)
    return _fill_left_over(work, runs, limit) or changed


def _raise_levels(work: Workspace, runs: list[Run], limit: LoadLimit) -> bool:
    """Water filling; jobs of whole machines take only sizes that fit on one machine or on whole ones."""
    active = [run for run in runs if run.is_running and run.size < run.largest and _has_room(work, run)]
    changed = False
    while active:
        targets = _water_level(work, active)
        if all(target <= run.size for run, target in zip(active, targets, strict=True)):
            # Less than one instance per job is left: one at a time.
            lowest = min(
                range(len(active)), key=lambda i: (active[i].fair_level(active[i].size + 1), active[i].key)
            )
            targets[lowest] = active[lowest].size + 1
        still: list[Run] = []
        order = sorted(
            zip(active, targets, strict=True),
            key=lambda pair: (pair[0].fair_level(pair[0].size), pair[0].key),
        )
        for run, target in order:
            wanted = target - run.size
            if wanted > 0 and not _has_room(work, run):
                continue
            if wanted > 0:
                grown = _grow(work, run, allowed(work, limit, run, wanted))
                changed |= grown > 0
                if grown < wanted:
                    # Free capacity only falls: what does not fit now will not fit later.
                    continue
            if run.size < run.largest:
                still.append(run)
        active = still
    return changed


def _fill_left_over(work: Workspace, runs: list[Run], limit: LoadLimit) -> bool:
    """Grows jobs of whole machines into what is left: a whole machine if one is free, else a single instance."""
    changed = False
    active = [
        (run.fair_level(run.size), run.key)
        for run in runs
        if run.whole_machines and run.is_running and run.size < run.largest and _has_room(work, run)
    ]
    heapq.heapify(active)
    while active:
        run = work.runs[heapq.heappop(active)[1]]
        if _grow_a_step(work, run, limit):
            changed = True
            if run.size < run.largest:
                heapq.heappush(active, (run.fair_level(run.size), run.key))
    return changed


def _grow_a_step(work: Workspace, run: Run, limit: LoadLimit) -> bool:
    """Grows one job to its next size on one machine or on whole ones, else by one instance wherever there is room."""
    if not _has_room(work, run):
        return False
    room = allowed(work, limit, run, min(run.largest - run.size, max(run.per_machine, 1)))
    sizes = candidate_sizes(run.size, run.size + room, run.per_machine, whole_machines=True)
    if len(sizes) > 1 and resize_whole(work, run, int(sizes[1])):
        return True
    return _place_anywhere(work, run, min(room, 1)) > 0


def _has_room(work: Workspace, run: Run) -> bool:
    return bool(work.inventory.fits(run.request, run.mask).any())


def _grow(work: Workspace, run: Run, wanted: int) -> int:
    if wanted <= 0:
        return 0
    if run.whole_machines and run.per_machine > 0:
        before = run.size
        for size in candidate_sizes(before, before + wanted, run.per_machine, whole_machines=True)[
            :0:-1
        ].tolist():
            if resize_whole(work, run, size):
                return run.size - before
        return 0
    return _place_anywhere(work, run, wanted)


def _place_anywhere(work: Workspace, run: Run, wanted: int) -> int:
    """Places up to `wanted` more instances, on the job's own machines first; returns how many."""
    if wanted <= 0:
        return 0
    prefer = sorted(set(run.base.get(run.role, {})) | set(run.spots[run.role]))
    spots = work.inventory.pack(run.request, run.mask, wanted, prefer=prefer, partial=True)
    if not spots:
        return 0
    work.place(run, run.role, spots)
    return sum(spots.values())


def _water_level(work: Workspace, active: list[Run]) -> list[int]:
    """Returns the sizes at the highest common level that the sum of free resources allows."""
    free = np.maximum(work.inventory.free[work.inventory.is_open], 0).sum(axis=0).astype(np.float64)
    sizes = np.array([run.size for run in active], dtype=np.float64)
    most = np.array([run.largest for run in active], dtype=np.float64)
    rate = np.array([run.job.weight / max(run.share, 1e-15) for run in active])
    requests = np.stack([run.request for run in active]).astype(np.float64)

    def at(level: float) -> NDArray[np.float64]:
        return np.asarray(np.clip(np.floor(level * rate + 1e-9), sizes, most))

    low, high = 0.0, float(np.max(most / rate)) + 1.0
    if not ((at(high) - sizes) @ requests > free).any():
        return [int(size) for size in at(high)]
    for _ in range(40):
        middle = (low + high) / 2
        if ((at(middle) - sizes) @ requests > free).any():
            high = middle
        else:
            low = middle
    return [int(size) for size in at(low)]


def balance_fair_shares(work: Workspace, runs: list[Run], pool: list[Run], limit: LoadLimit) -> bool:
    """Moves single instances from jobs above to jobs below; returns whether anything changed.

    `pool` are measured jobs, which trade among themselves: their common level counts for each of them.
    """
    changed = False
    receivers = [
        (-run.priority, run.fair_level(run.size), run.key)
        for run in runs
        if run.is_running and run.size < run.largest
    ]
    if not receivers:
        return False
    heapq.heapify(receivers)
    ceiling = _Ceiling(work, pool)
    # Kinds of requests for which no job can give; a transfer changes machines, and they are tried again.
    hopeless: set[object] = set()
    while receivers:
        receiver = work.runs[heapq.heappop(receivers)[2]]
        kind = (receiver.request.tobytes(), id(receiver.mask), receiver.priority, receiver.job.namespace)
        if (
            receiver.size >= receiver.largest
            or kind in hopeless
            or not ceiling.can_take(receiver)
            or not work.quotas.room(receiver.job.namespace, receiver.request, 1)
        ):
            continue
        if _take_one(work, receiver, pool):
            changed = True
            hopeless.clear()
            heapq.heappush(receivers, (-receiver.priority, receiver.fair_level(receiver.size), receiver.key))
        else:
            hopeless.add(kind)
    return changed


class _Ceiling:
    """Bounds on what jobs can give, so that most receivers are answered without looking at every job.

    Levels of givers only fall while instances change hands, and a receiver never rises above the level at which its
    giver ends, so the bounds stay valid.
    """

    def __init__(self, work: Workspace, pool: list[Run]) -> None:
        self._has_quotas = work.quotas.has_quotas
        self._levels: dict[int, float] = {}
        in_pool = {run.key for run in pool}
        level_of_pool = pool_level(pool)
        for run in work.runs.values():
            if run.surplus > 0:
                level = level_of_pool if run.key in in_pool else run.fair_level(run.size)
                self._levels[run.priority] = max(level, self._levels.get(run.priority, 0.0))
        self._lowest = min(self._levels, default=0)

    def can_take(self, receiver: Run) -> bool:
        if self._has_quotas or (self._levels and self._lowest < receiver.priority):
            return True
        return self._levels.get(receiver.priority, 0.0) > receiver.fair_level(receiver.size + 1)


def pool_level(pool: list[Run], released: int = 0, by: Run | None = None) -> float:
    weight = sum(run.job.weight for run in pool if run.is_running)
    amount = sum(run.size * run.share for run in pool if run.is_running)
    return (amount - (released * by.share if by is not None else 0.0)) / max(weight, 1e-12)


def _why_given(run: Run, receiver: Run, *, by_quota: bool) -> str:
    if run.priority < receiver.priority:
        return f"gives to {receiver.key}, whose priority is higher"
    if by_quota:
        return f"gives back to {receiver.key} what the quota of namespace {receiver.job.namespace} guarantees"
    return f"gives to {receiver.key}, whose share is lower"


def _take_one(work: Workspace, receiver: Run, pool: list[Run]) -> bool:
    """Takes room for one instance from the job with the highest level that can give it."""
    if receiver.whole_machines and receiver.per_machine > 0 and receiver.size >= receiver.per_machine:
        # Whole machines change hands by admission and by the market only.
        return False
    in_pool = {run.key for run in pool}
    level_of_pool = pool_level(pool)
    after = receiver.fair_level(receiver.size + 1)
    entitled = work.quotas.is_within_guarantee(receiver.job.namespace, receiver.request)

    def level(run: Run) -> float:
        return level_of_pool if run.key in in_pool else run.fair_level(run.size)

    def unconditional(run: Run) -> bool:
        return run.priority < receiver.priority or (
            entitled
            and run.job.namespace != receiver.job.namespace
            and work.quotas.is_borrowing(run.job.namespace, run.request)
        )

    donors = [
        run
        for run in work.runs.values()
        if run is not receiver
        and run.surplus > 0
        and (unconditional(run) or (run.priority == receiver.priority and level(run) > after))
    ]
    donors.sort(key=lambda run: (not unconditional(run), run.priority, -level(run), run.key))
    for run in donors:
        most = run.surplus
        if not unconditional(run):
            if run.key in in_pool:
                most = min(
                    most,
                    int((level_of_pool - after) * sum(r.job.weight for r in pool) / max(run.share, 1e-15)),
                )
            else:
                most = min(
                    most, run.size - int(np.ceil(after * run.job.weight / max(run.share, 1e-15) - 1e-9))
                )
        if most < 1:
            continue
        why = _why_given(run, receiver, by_quota=unconditional(run))
        machine = release_for(work, run, receiver.request, receiver.mask, most=most)
        if machine is not None:
            work.place(receiver, receiver.role, {machine: 1})
            run.note = run.note or why
            return True
    return False
