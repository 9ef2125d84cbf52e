"""Realises the target sizes of measured jobs on machines, and accepts the result only if it pays.

The market (`growth`) chooses sizes from sums. Here they become placements: jobs that keep their size stay where they
are, jobs that shrink release instances in place, jobs that grow take whole machines, largest first, clearing machines
of small jobs where needed. Then all changes together are weighed:

    gain = Σ over jobs of value·(S(new size) − S(old size)),  value = v·H
    cost = Σ over jobs that restart, displaced ones included, of resize seconds · v · S(new size)

If the gain does not exceed the cost, everything is rolled back, and only growth into free room is tried, job by job.

Whole machines are a preference. What is still free goes in single instances to jobs of whole machines, wherever there
is room, if that pays at their speed across machines: a cluster whose scheduler spreads pods has few whole machines.

Values do not depend on the current allocation, and a second plan starts from the first one's result, where every
further change costs a resize; so planning again changes nothing.
"""

from __future__ import annotations

import heapq

import numpy as np

from elasticdl.scheduling.growth.resize import resize_whole, shrink_to
from elasticdl.scheduling.growth.shares import LoadLimit, allowed
from elasticdl.scheduling.growth.target_sizes import Bids, Market, SpeedTable
from elasticdl.scheduling.inventory import Spots
from elasticdl.scheduling.workspace import Run, Workspace


class MarketAllocator:
    """Plans the measured jobs of one priority that share a main resource."""

    def __init__(
        self, work: Workspace, runs: list[Run], *, limit: LoadLimit, horizon_seconds: float, hysteresis: float
    ) -> None:
        self._work = work
        self._runs = [run for run in runs if run.is_running and run.table is not None]
        self._limit = limit
        self._horizon = horizon_seconds
        self._hysteresis = hysteresis

    def improve(self, lower: list[Run]) -> bool:
        """Changes sizes and placements if that pays; returns whether anything changed.

        `lower`: jobs of lower priority on the same resource, which give what they have above their minimum.
        """
        runs = self._runs
        if not runs or all(run.largest <= run.size and run.surplus <= 0 for run in runs):
            return False
        work = self._work
        tables = [
            _choices(run, run.size + allowed(work, self._limit, run, run.largest - run.size)) for run in runs
        ]
        main = runs[0].main
        market = Market(
            tables,
            weights=[run.job.weight for run in runs],
            unit=[max(int(run.request[main]), 1) for run in runs],
            current=[run.size if run.base_size > 0 else 0 for run in runs],
            resize_seconds=[run.job.resize_cost_seconds * (1.0 + self._hysteresis) for run in runs],
            horizon_seconds=self._horizon,
        )
        rows = np.logical_or.reduce([run.mask for run in runs])
        free = np.maximum(work.inventory.free[rows, main], 0).sum()
        held = sum(run.size * int(run.request[main]) for run in runs)
        given = sum(run.surplus * int(run.request[main]) for run in lower)
        bids = market.bid(float(free + held + given))
        for run, value in zip(runs, bids.value, strict=True):
            run.numbers.update(price=bids.price, value=float(value))
        short = int(
            sum(int(size) * int(run.request[main]) for size, run in zip(bids.sizes, runs, strict=True))
        )
        short -= int(free + held)
        for run in sorted(lower, key=lambda run: (run.priority, -run.surplus, run.key)):
            if short <= 0:
                break
            if run.surplus > 0:
                short -= run.surplus * int(run.request[main])
                run.note = run.note or "gives to jobs of higher priority"
                shrink_to(work, run, run.minimum)
        value = {run.key: float(each) for run, each in zip(runs, bids.value, strict=True)}
        changed = self._realise(bids, value)
        return self._fill_left_over(value) or changed

    def _realise(self, bids: Bids, value: dict[str, float]) -> bool:
        work = self._work
        targets = dict(zip((run.key for run in self._runs), bids.sizes.tolist(), strict=True))
        if all(targets[run.key] == run.size for run in self._runs):
            return False
        before = {run.key: (run.size, dict(run.spots[run.role])) for run in self._runs}
        work.begin()
        for run in self._runs:
            if targets[run.key] < run.size:
                self._shrink(run, targets[run.key])
        growing = [run for run in self._runs if targets[run.key] > run.size]
        growing.sort(key=lambda run: (-targets[run.key], run.job.submitted_at_seconds, run.key))
        clear = self._small_jobs()
        for run in growing:
            self._grow(run, targets[run.key], clear)
        if self._pays(before, value):
            work.commit()
            return True
        work.roll_back()
        return self._grow_alone(growing, targets, value)

    def _shrink(self, run: Run, size: int) -> None:
        spots = run.spots[run.role]
        if run.whole_machines and 0 < size < run.per_machine < run.size:
            rank = self._work.inventory.release_rank
            keep = max(spots, key=lambda machine: (-int(rank[machine]), spots[machine], -machine))
            size = min(size, spots[keep])
            released = {machine: count for machine, count in spots.items() if machine != keep}
            self._work.release(run, run.role, released)
            if run.size > size:
                self._work.release(run, run.role, {keep: run.size - size})
            return
        shrink_to(self._work, run, size)

    def _grow(self, run: Run, target: int, clear: dict[int, list[Run]] | None) -> None:
        work = self._work
        if not run.whole_machines or run.per_machine <= 0:
            spots = work.inventory.pack(
                run.request, run.mask, target - run.size, prefer=sorted(run.spots[run.role]), partial=True
            )
            if spots:
                work.place(run, run.role, spots)
            return
        assert run.table is not None
        whole = int((work.inventory.fits(run.request, run.mask) >= run.per_machine).sum())
        # No more machines than these can be whole: spares most attempts on a full cluster.
        most = (whole + len(run.spots[run.role]) + len(clear or ())) * run.per_machine
        for size in run.table.sizes[::-1].tolist():
            if size > run.per_machine and size > most:
                continue
            if run.size < size <= target and resize_whole(work, run, size, clear=clear):
                return

    def _small_jobs(self) -> dict[int, list[Run]]:
        """Jobs of less than a machine, by machine; only machines on which all of ours are small."""
        small: dict[int, list[Run]] = {}
        closed: set[int] = set()
        tradable = {run.key for run in self._runs}
        for run in self._work.runs.values():
            for role, spots in run.spots.items():
                if (
                    role == run.role
                    and run.key in tradable
                    and run.whole_machines
                    and run.size < run.per_machine
                ):
                    for machine in spots:
                        small.setdefault(machine, []).append(run)
                else:
                    closed.update(spots)
        return {machine: runs for machine, runs in small.items() if machine not in closed}

    def _pays(self, before: dict[str, tuple[int, dict[int, int]]], value: dict[str, float]) -> bool:
        gain = cost = 0.0
        for run in self._runs:
            table = run.table
            assert table is not None
            size, spots = before[run.key]
            if spots == run.spots[run.role]:
                continue
            speed = table.on(run.size, len(run.spots[run.role]))
            gain += value[run.key] * (speed - table.on(size, len(spots)))
            cost += self._resize_cost(run, table, speed, value[run.key])
        return gain > cost

    def _resize_cost(self, run: Run, table: SpeedTable, speed: float, value: float) -> float:
        """`speed`: of the job after the resize."""
        if run.base_size == 0:
            return 0.0
        horizon = max(min(table.work_left_seconds / speed, self._horizon), 1e-9)
        return run.job.resize_cost_seconds * (1.0 + self._hysteresis) * value / horizon * speed

    def _grow_alone(self, growing: list[Run], targets: dict[str, int], value: dict[str, float]) -> bool:
        """Grows jobs into free room, each only if that pays."""
        work = self._work
        changed = False
        for run in growing:
            size, spots = run.size, dict(run.spots[run.role])
            work.begin()
            self._grow(run, targets[run.key], None)
            if run.size > size and self._gain(run, size, spots, value) > 0:
                work.commit()
                changed = True
            else:
                work.roll_back()
        return changed

    def _gain(self, run: Run, size: int, spots: dict[int, int], value: dict[str, float]) -> float:
        """Returns a job's gain, less the cost of its resize, from the size and the machines that it had."""
        table = run.table
        assert table is not None
        speed = table.on(run.size, len(run.spots[run.role]))
        gain = value[run.key] * (speed - table.on(size, len(spots)))
        return gain - self._resize_cost(run, table, speed, value[run.key])

    def _fill_left_over(self, value: dict[str, float]) -> bool:
        """Gives free room in single instances to jobs of whole machines, the largest gain per instance first."""
        changed = False
        runs = {run.key: run for run in self._runs if run.whole_machines and run.size < run.largest}
        offers = [(-self._best_spread(run, value)[0], key) for key, run in runs.items()]
        heapq.heapify(offers)
        while offers and offers[0][0] < 0:
            key = heapq.heappop(offers)[1]
            # Room only falls: an offer from before is an upper bound.
            gain, spots = self._best_spread(runs[key], value)
            if offers and (-gain, key) > offers[0]:
                heapq.heappush(offers, (-gain, key))
            elif spots:
                self._work.place(runs[key], runs[key].role, spots)
                changed = True
        return changed

    def _best_spread(self, run: Run, value: dict[str, float]) -> tuple[float, Spots]:
        """Returns the largest gain per instance that more instances of a job bring, and where they go."""
        work, best = self._work, (0.0, Spots())
        assert run.table is not None
        room = int(work.inventory.fits(run.request, run.mask).sum())
        most = allowed(work, self._limit, run, min(run.largest - run.size, room))
        if most < 1 or run.table.spread is None:
            return best
        before, held = run.size, dict(run.spots[run.role])
        sizes = run.table.spread.sizes
        for size in sizes[(sizes > before) & (sizes <= before + most)].tolist():
            spots = work.inventory.pack(run.request, run.mask, size - before, prefer=sorted(held))
            if spots is None:
                break
            work.place(run, run.role, spots)
            gain = self._gain(run, before, held, value) / (size - before)
            work.release(run, run.role, spots)
            if gain > best[0]:
                best = (gain, spots)
        return best


def _choices(run: Run, largest: int) -> SpeedTable:
    """Returns the table of a job with the size that it has, up to the size that quota and load target allow."""
    assert run.table is not None
    return run.table.including(run.size).up_to(max(largest, run.size))
