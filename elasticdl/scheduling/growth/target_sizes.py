"""Target sizes of measured jobs: a price of capacity that every job answers with the size that suits it best.

Notation: S(r) the speed of a job at r instances relative to its smallest size, W its work left in seconds at that
smallest size, w its weight, λ the price of one instance for one second in seconds of completion time.

A job that runs at size r until its end takes W/S(r) seconds and costs the others λ·r·W/S(r). The sum is smallest at the
size with the smallest (w + λ·r)/S(r), whatever W is. That minimum,

    v = min over r of (w + λ_end·r)/S(r)

is what one unit of the job's work is worth, with λ_end the price when the job ends. Now, at price λ, it takes

    r = argmax of  v·S(r) − λ·r

λ_end: jobs with less work left will be gone by then, and the price falls with demand:

    λ_end = λ · (demand of the jobs with at least as much work left) / (demand of all jobs)

This is what favours short jobs: for equal jobs that scale as r^p it gives the order of completion that is known to be
optimal for batches of parallel jobs, and it needs no tuned exponent.

A change costs the job's own resize: c·v·S(r) for c seconds without progress; its gain lasts for H = min(time left,
horizon). So the size that is chosen maximises

    (v·S(r) − λ·r)·H − [r ≠ current size]·c·v·S(r)

which also forbids growth near the end of a job, and is the hysteresis under noise. λ is the lowest price at which
demand fits the capacity, found by bisection; then single jobs grow while capacity is left.

Failure modes: none of its own; a job without usable measurements is not planned here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduling.demand import JobDemand
from elasticdl.scheduling.growth.speed import SpeedModel, goodputs

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOWEST_PRICE, _HIGHEST_PRICE = 1e-4, 1e3
_BISECTIONS = 24
# Steps in which the price falls while capacity is left over.
_PRICE_CUT = 0.6
# More sizes than this are thinned out geometrically.
_MOST_SIZES = 64


@dataclass(frozen=True, kw_only=True)
class SpeedTable:
    """speed: S(r) at each of `sizes`, ascending; work_left_seconds: W (at the smallest size).

    spread: S(r) of instances that are spread over machines, where sizes are otherwise those of whole machines.
    """

    sizes: IntArray
    speed: Array
    work_left_seconds: float
    spread: SpeedTable | None = None

    def at(self, size: int) -> float:
        """Returns S at any size, linear between the known ones."""
        return float(np.interp(size, self.sizes, self.speed))

    def on(self, size: int, machines: int) -> float:
        """Returns S at a size on so many machines."""
        return self.at(size) if self.spread is None or machines <= 1 else self.spread.at(size)

    def up_to(self, largest: int) -> SpeedTable:
        """Returns the table without the sizes above one; the smallest size stays."""
        count = max(int(np.searchsorted(self.sizes, largest, side="right")), 1)
        if count == len(self.sizes):
            return self
        return replace(self, sizes=self.sizes[:count], speed=self.speed[:count])

    def including(self, size: int) -> SpeedTable:
        """Returns the table with one more size: that of a job whose instances are spread."""
        index = int(np.searchsorted(self.sizes, size))
        is_known = index < len(self.sizes) and self.sizes[index] == size
        if self.spread is None or is_known or size < self.sizes[0]:
            return self
        return replace(
            self,
            sizes=np.insert(self.sizes, index, size),
            speed=np.insert(self.speed, index, self.spread.at(size)),
        )


def candidate_sizes(smallest: int, largest: int, per_machine: int, *, whole_machines: bool) -> IntArray:
    """Returns the sizes between which a job chooses.

    For workers that synchronise: every size within one machine, then whole machines only. One worker on a second
    machine would make all of them pay for the network, and whole machines do not fragment. What these sizes leave free
    is given away afterwards (`shares`, `allocation`).
    """
    if whole_machines and per_machine > 0:
        sizes = list(range(smallest, min(per_machine, largest) + 1))
        first = max(per_machine, -(-smallest // per_machine) * per_machine)
        sizes += list(range(first, largest + 1, per_machine))
        sizes.append(smallest)
        result = np.unique(np.array(sizes, dtype=np.int64))
    else:
        result = np.arange(smallest, largest + 1, dtype=np.int64)
    if len(result) > _MOST_SIZES:
        picks = np.unique(np.geomspace(1, len(result), _MOST_SIZES).round().astype(np.int64)) - 1
        result = result[picks]
    return result


def speed_table(
    job: JobDemand,
    model: SpeedModel,
    sizes: IntArray,
    per_machine: int,
    unknown_work_seconds: float,
    *,
    spread_sizes: IntArray | None = None,
) -> SpeedTable | None:
    """Returns the table of one job; None if the model gives no positive speed.

    `spread_sizes`: sizes that it may also have on more machines than it needs, at the speed across machines.
    """
    replicas = sizes.astype(np.float64)
    machines = np.ceil(replicas / max(per_machine, 1))
    goodput, _, _ = goodputs(model, job.batch, job.noise, machines, replicas)
    if not np.isfinite(goodput).all() or goodput[0] <= 0:
        return None
    work = work_left(job)
    seconds = unknown_work_seconds if work is None else work / float(goodput[0])
    table = SpeedTable(sizes=sizes, speed=goodput / goodput[0], work_left_seconds=max(seconds, 1.0))
    if spread_sizes is None:
        return table
    replicas = spread_sizes.astype(np.float64)
    # The model tells one machine from several, and not several from more.
    across, _, _ = goodputs(model, job.batch, job.noise, np.minimum(replicas, 2.0), replicas)
    if not np.isfinite(across).all():
        return table
    spread = replace(table, sizes=spread_sizes, speed=across / goodput[0])
    return replace(table, spread=spread)


def work_left(job: JobDemand) -> float | None:
    """Returns the work left in the unit of goodput, from the total or from epochs done of epochs asked for."""
    progress = job.progress
    if progress.work_total is not None and math.isfinite(progress.work_total):
        return max(progress.work_total - progress.work_done, 0.0)
    if progress.epochs_total is None or progress.epochs_total <= 0 or progress.work_done <= 0:
        return None
    done = max(progress.epochs_done, 0.0)
    if done == math.floor(done):
        # Only whole epochs are reported: on average the job is in the middle of the next one.
        done += 0.5
    left = max(progress.epochs_total - done, 0.0)
    return progress.work_done * left / done


@dataclass(frozen=True, kw_only=True)
class Bids:
    """Sizes that the jobs chose, and what the choice was based on.

    value: v·H, what one unit of speed is worth until the end of the horizon; price: λ.
    """

    sizes: IntArray
    value: Array
    price: float


class Market:
    """The jobs that share one main resource, as padded arrays."""

    def __init__(
        self,
        tables: Sequence[SpeedTable],
        *,
        weights: Sequence[float],
        unit: Sequence[int],
        current: Sequence[int],
        resize_seconds: Sequence[float],
        horizon_seconds: float,
    ) -> None:
        width = max(len(table.sizes) for table in tables)
        count = len(tables)
        self.sizes = np.zeros((count, width))
        self.speed = np.zeros((count, width))
        for row, table in enumerate(tables):
            self.sizes[row, : len(table.sizes)] = table.sizes
            self.speed[row, : len(table.sizes)] = table.speed
        self.exists = self.speed > 0
        self.work = np.array([table.work_left_seconds for table in tables])
        self.weight = np.array(weights, dtype=np.float64)[:, None]
        # Units of the resource that one instance takes, relative to the smallest instance.
        self.unit = np.array(unit, dtype=np.float64)
        self.amount = self.sizes * self.unit[:, None]
        self.current = np.array(current, dtype=np.float64)
        self.resize = np.array(resize_seconds, dtype=np.float64)
        self.horizon = horizon_seconds
        self._scale = float(self.unit.min())
        # Work per weight: what counts more leaves earlier.
        self._longest_first = np.argsort(-self.work / self.weight[:, 0], kind="stable")
        self._rows = np.arange(count)

    def bid(self, capacity: float) -> Bids:
        price = self._clear(capacity, sticky=False)
        value, horizon = self._value(price)
        sticky_price = self._clear(capacity, sticky=True)
        choice = self._fill(capacity, sticky_price)
        return Bids(
            sizes=self.sizes[self._rows, choice].astype(np.int64),
            value=value * horizon,
            price=sticky_price / self._scale,
        )

    def _value(self, price: float) -> tuple[Array, Array]:
        """Returns v and H of every job."""
        cost = price / self._scale * self.amount
        speed = np.where(self.exists, self.speed, 1.0)
        first = np.where(self.exists, (self.weight + cost) / speed, np.inf)
        demand = self.amount[self._rows, np.argmin(first, axis=1)]
        later = np.empty(len(demand))
        later[self._longest_first] = np.cumsum(demand[self._longest_first])
        fall = later / max(float(demand.sum()), 1e-12)
        per_size = np.where(self.exists, (self.weight + cost * fall[:, None]) / speed, np.inf)
        value = per_size.min(axis=1)
        ideal = np.argmax(np.where(self.exists, value[:, None] * self.speed - cost, -np.inf), axis=1)
        left = self.work / self.speed[self._rows, ideal]
        return value, np.minimum(left, self.horizon)

    def _net(self, price: float, *, sticky: bool) -> Array:
        value, horizon = self._value(price)
        worth = value[:, None] * self.speed
        net = worth - price / self._scale * self.amount
        if sticky:
            changes = (self.sizes != self.current[:, None]) & (self.current[:, None] > 0)
            net = net * horizon[:, None] - np.where(changes, self.resize[:, None] * worth, 0.0)
        return np.where(self.exists, net, -np.inf)

    def _demand(self, choice: IntArray) -> float:
        return float(self.amount[self._rows, choice].sum())

    def _clear(self, capacity: float, *, sticky: bool) -> float:
        low, high = _LOWEST_PRICE, _HIGHEST_PRICE
        if self._demand(np.argmax(self._net(low, sticky=sticky), axis=1)) <= capacity:
            return low
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            if self._demand(np.argmax(self._net(middle, sticky=sticky), axis=1)) <= capacity:
                high = middle
            else:
                low = middle
        return high

    def _fill(self, capacity: float, price: float) -> IntArray:
        """Spends what the clearing price leaves over: at falling prices, single jobs grow while they fit."""
        choice: IntArray = np.argmax(self._net(price, sticky=True), axis=1)
        left = capacity - self._demand(choice)
        while left >= self._scale and price > _LOWEST_PRICE:
            price = max(price * _PRICE_CUT, _LOWEST_PRICE)
            net = self._net(price, sticky=True)
            # A size that does not fit is no choice, even if the job would like it best.
            net = np.where(self.amount > self.amount[self._rows, choice][:, None] + left, -np.inf, net)
            wanted = np.argmax(net, axis=1)
            more = self.amount[self._rows, wanted] - self.amount[self._rows, choice]
            gain = net[self._rows, wanted] - net[self._rows, choice]
            growing = np.flatnonzero(more > 0)
            for row in growing[np.argsort(-gain[growing] / more[growing], kind="stable")].tolist():
                if more[row] <= left:
                    choice[row] = wanted[row]
                    left -= float(more[row])
        return choice
