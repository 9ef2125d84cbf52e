"""Machines as arrays: what is free on each, which may take which pods, and exact packing on them.

Why it exists: sums over a cluster say nothing about whether a pod fits. All questions of room are answered here, per
machine, in integers.

`free` may be negative: a machine that reports less than its pods request takes nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduling.cluster import Machine, Resources, TaintEffect, Toleration

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
# machine index -> instances
Spots = dict[int, int]
_EVERYWHERE = np.int64(2**62)


class Inventory:
    """Free resources of every machine, machines in the order of their names."""

    def __init__(self, machines: Sequence[Machine], resources: Sequence[str]) -> None:
        self.machines = sorted(machines, key=lambda machine: machine.name)
        self.names = [machine.name for machine in self.machines]
        self.index = {name: number for number, name in enumerate(self.names)}
        self.resources = list(resources)
        self.column = {name: number for number, name in enumerate(self.resources)}
        self.allocatable: Ints = np.zeros((len(self.machines), len(self.resources)), dtype=np.int64)
        for name, column in self.column.items():
            self.allocatable[:, column] = [machine.allocatable.get(name, 0) for machine in self.machines]
        self.free: Ints = self.allocatable.copy()
        self.is_open: Mask = np.array(
            [machine.is_ready and not machine.is_cordoned for machine in self.machines], dtype=bool
        )
        # Of machines that may take pods; what the others have is no capacity.
        self.totals: Ints = self.allocatable[self.is_open].sum(axis=0)
        self._masks: dict[object, Mask] = {}

    def vector(self, requests: Resources) -> Ints:
        """Returns requests as a row; a resource that no job or machine names cannot appear."""
        row = np.zeros(len(self.resources), dtype=np.int64)
        for name, quantity in requests.items():
            row[self.column[name]] = quantity
        return row

    def mask(self, node_selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> Mask:
        """Returns which machines may take a pod: ready, labels match, every taint tolerated."""
        key = (tuple(sorted(node_selector.items())), tolerations)
        known = self._masks.get(key)
        if known is None:
            known = self.is_open.copy()
            for number, machine in enumerate(self.machines):
                if not known[number]:
                    continue
                known[number] = all(
                    machine.labels.get(name) == value for name, value in node_selector.items()
                ) and all(
                    taint.effect is TaintEffect.PREFER_NO_SCHEDULE
                    or any(t.matches(taint) for t in tolerations)
                    for taint in machine.taints
                )
            self._masks[key] = known
        return known

    def take(self, machine: int, request: Ints, count: int = 1) -> None:
        self.free[machine] -= request * count

    def give(self, machine: int, request: Ints, count: int = 1) -> None:
        self.free[machine] += request * count

    def take_all(self, spots: Spots, request: Ints) -> None:
        if spots:
            rows = np.fromiter(spots.keys(), dtype=np.int64, count=len(spots))
            counts = np.fromiter(spots.values(), dtype=np.int64, count=len(spots))
            self.free[rows] -= counts[:, None] * request

    def give_all(self, spots: Spots, request: Ints) -> None:
        if spots:
            rows = np.fromiter(spots.keys(), dtype=np.int64, count=len(spots))
            counts = np.fromiter(spots.values(), dtype=np.int64, count=len(spots))
            self.free[rows] += counts[:, None] * request

    def fits(self, request: Ints, mask: Mask, free: Ints | None = None) -> Ints:
        """Returns how many instances of a request fit on each machine now."""
        return count_fits(self.free if free is None else free, request, mask)

    def pack(
        self, request: Ints, mask: Mask, count: int, *, prefer: Sequence[int] = (), partial: bool = False
    ) -> Spots | None:
        """Returns where `count` instances go, None if they do not fit. Nothing is taken yet.

        With `partial` as many as fit are placed.

        Best fit: preferred machines first, then those that end up with the least left over, so that machines
        fill up completely and large pods find room later.
        """
        room = self.fits(request, mask)
        spots: Spots = {}
        left = count
        for machine in prefer:
            number = int(min(left, room[machine]))
            if number > 0:
                spots[machine] = number
                left -= number
        if left == 0:
            return spots
        if spots:
            room = room.copy()
            room[list(spots)] -= list(spots.values())
        candidates = np.flatnonzero(room > 0)
        possible = int(np.minimum(room[candidates], left).sum())
        if possible < left:
            if not partial:
                return None
            left = possible
        if left == 0:
            return spots
        keys = self._left_over(request, candidates, room[candidates])
        order = candidates[np.lexsort((candidates, *keys))]
        total = np.minimum(np.cumsum(room[order]), left)
        used = int(np.searchsorted(total, left)) + 1
        counts = np.diff(total[:used], prepend=0)
        for machine, number in zip(order[:used].tolist(), counts.tolist(), strict=True):
            spots[machine] = spots.get(machine, 0) + number
        return spots

    def pack_whole(
        self, request: Ints, mask: Mask, per_machine: int, machines: int, *, prefer: Spots
    ) -> Spots | None:
        """Returns `machines` machines with room for `per_machine` instances each, held ones first."""
        room = self.fits(request, mask)
        whole = np.flatnonzero(room >= per_machine)
        if len(whole) < machines:
            return None
        held = [machine for machine in sorted(prefer) if room[machine] >= per_machine][:machines]
        picked = list(held)
        if len(picked) < machines:
            taken = set(picked)
            # The fullest of those that suffice, so that larger machines stay whole.
            order = whole[np.lexsort((whole, room[whole]))].tolist()
            picked += [machine for machine in order if machine not in taken][: machines - len(picked)]
        return dict.fromkeys(sorted(picked), per_machine)

    def main_resource(self, request: Ints) -> int:
        """The column of which an instance takes the largest share of the cluster."""
        return int(np.argmax(request / np.maximum(self.totals, 1)))

    def share(self, request: Ints) -> float:
        """The share of the cluster's main resource that one instance takes (its dominant share)."""
        return float(np.max(request / np.maximum(self.totals, 1), initial=0.0))

    def _left_over(self, request: Ints, candidates: Ints, room: Ints) -> tuple[Ints, ...]:
        """Sort keys, least significant first: all that is free, then what stays free when filled."""
        asked = np.flatnonzero(request)
        if not len(asked):
            return (np.zeros(len(candidates), dtype=np.int64),)
        main = self.main_resource(request)
        free = self.free[candidates]
        return (room, free[:, main] - room * request[main])


def count_fits(free: Ints, request: Ints, mask: Mask) -> Ints:
    asked = np.flatnonzero(request)
    if not len(asked):
        # Requests nothing: as many as anyone asks for.
        return np.where(mask, _EVERYWHERE // 2**31, 0)
    room: Ints = free[:, asked[0]] // request[asked[0]]
    for column in asked[1:]:
        room = np.minimum(room, free[:, column] // request[column])
    return np.where(mask, np.maximum(room, 0), 0)
