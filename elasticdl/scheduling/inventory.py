"""Machines as arrays: what is free on each, which may take which pods, and exact packing on them.

Why it exists: sums over a cluster say nothing about whether a pod fits. All questions of room are answered here, per
machine, in integers. Where machines have a limit of pods, it is one more resource: each pod takes one. It is never a
job's main resource, so that it does not change shares and prices.

`free` may be negative: a machine that reports less than its pods request takes nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.requirements import PODS, UNLIMITED_PODS, Resources, TaintEffect, Toleration

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
# machine index -> instances
Spots = dict[int, int]
# As many as anyone asks for.
_EVERYWHERE = np.int64(2**30)
_NO_ROOM = np.int64(2**62)


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
            none = UNLIMITED_PODS if name == PODS else 0
            self.allocatable[:, column] = [machine.allocatable.get(name, none) for machine in self.machines]
        # Where each pod takes one; None if no machine has a limit.
        self.pods_column = self.column.get(PODS)
        self.free: Ints = self.allocatable.copy()
        self.is_open: Mask = np.array([machine.takes_pods for machine in self.machines], dtype=bool)
        # Their pods stay, although they take no new ones.
        self.is_kept: Mask = np.array([machine.is_ready for machine in self.machines], dtype=bool)
        self.is_draining: Mask = np.array([machine.is_draining for machine in self.machines], dtype=bool)
        self.release_rank: Ints = np.array(
            [machine.release_rank for machine in self.machines], dtype=np.int64
        )
        # Only machines that may take pods count as capacity.
        self.totals: Ints = self.allocatable[self.is_open].sum(axis=0)
        self._sized = [column for name, column in self.column.items() if name != PODS]
        self._scale = np.maximum(self.totals, 1).astype(np.float64)
        if self.pods_column is not None:
            self._scale[self.pods_column] = np.inf
        self._masks: dict[object, Mask] = {}
        # Machines in the order in which they changed; every `_Room` remembers how far it has read.
        self._changed: list[int] = []
        self._rooms: dict[object, _Room] = {}

    def vector(self, requests: Resources) -> Ints:
        """Returns requests as a row; a resource that no job or machine names cannot appear."""
        row = np.zeros(len(self.resources), dtype=np.int64)
        for name, quantity in requests.items():
            row[self.column[name]] = quantity
        return row

    def pod_vector(self, requests: Resources) -> Ints:
        """Returns what one pod takes."""
        row = self.vector(requests)
        if self.pods_column is not None:
            row[self.pods_column] = 1
        return row

    def has_requests(self, request: Ints) -> bool:
        """Whether a pod asks for more than to be one."""
        return int(np.count_nonzero(request)) > int(self.pods_column is not None)

    def least_left(self, left: Ints) -> int:
        """Returns the smallest amount of any resource but pods."""
        return int(left[self._sized].min())

    def without_pods(self, request: Ints) -> Ints:
        """Returns what a pod requests besides being one."""
        row = request.copy()
        if self.pods_column is not None:
            row[self.pods_column] = 0
        return row

    def mask(self, node_selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> Mask:
        """Returns which machines may take a pod: open, labels match, every taint tolerated."""
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

    def take(self, machine: int, amount: Ints) -> None:
        self.free[machine] -= amount
        self._changed.append(machine)

    def take_all(self, spots: Mapping[int, int], request: Ints) -> None:
        """Takes (or, with negative counts, gives back) instances on several machines."""
        if len(spots) == 1:
            for machine, count in spots.items():
                self.take(machine, request * count)
        elif spots:
            rows = np.fromiter(spots.keys(), dtype=np.int64, count=len(spots))
            counts = np.fromiter(spots.values(), dtype=np.int64, count=len(spots))
            self.free[rows] -= counts[:, None] * request
            self._changed.extend(spots)

    def fits(self, request: Ints, mask: Mask) -> Ints:
        """Returns how many instances of a request fit on each machine now. Not to be changed by the caller."""
        return self._room(request, mask).fits

    def _room(self, request: Ints, mask: Mask) -> _Room:
        """Room for one kind of request, brought up to date only where machines have changed since it was last asked."""
        key = (request.tobytes(), id(mask))
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = _Room(request, mask, self.main_resource(request))
            room.update(self.free, None)
        elif room.seen < len(self._changed):
            rows = self._changed[room.seen :]
            room.update(
                self.free, None if len(rows) * 4 > len(self.names) else np.array(rows, dtype=np.int64)
            )
        room.seen = len(self._changed)
        return room

    def fork(self) -> Inventory:
        """Returns a copy whose free resources change independently."""
        copy = object.__new__(Inventory)
        copy.__dict__.update(self.__dict__)
        copy.free = self.free.copy()
        copy._changed = list(self._changed[-1:])
        copy._changed.clear()
        copy._rooms = {
            key: room.fork() for key, room in self._rooms.items() if room.seen == len(self._changed)
        }
        return copy

    def pack(
        self, request: Ints, mask: Mask, count: int, *, prefer: Sequence[int] = (), partial: bool = False
    ) -> Spots | None:
        """Returns where `count` instances go, None if they do not fit. Nothing is taken yet.

        With `partial` as many as fit are placed.

        Best fit: preferred machines first, then those that end up with the least left over, so that machines
        fill up completely and large pods find room later.
        """
        kind = self._room(request, mask)
        room, rank = kind.fits, kind.rank
        spots: Spots = {}
        left = count
        for machine in prefer:
            number = min(left, int(room[machine]))
            if number > 0:
                spots[machine] = number
                left -= number
        if left <= 0:
            return spots
        if spots:
            room, rank = room.copy(), rank.copy()
            for machine, number in spots.items():
                room[machine] -= number
                if room[machine] == 0:
                    rank[machine] = _NO_ROOM
        if left == 1 and len(rank):
            order = np.array([np.argmin(rank)])
        else:
            # Each machine takes at least one, so that no more of them are needed than instances.
            order = np.argpartition(rank, left - 1)[:left] if left < len(rank) else np.arange(len(rank))
            order = order[np.lexsort((order, rank[order]))]
        total = np.minimum(np.cumsum(room[order]), left)
        possible = int(total[-1]) if len(total) else 0
        if possible < left:
            if not partial:
                return None
            left = possible
            if left == 0:
                return spots
        used = int(np.searchsorted(total, left)) + 1
        counts = np.diff(total[:used], prepend=0)
        for machine, number in zip(order[:used].tolist(), counts.tolist(), strict=True):
            if number:
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
        return int(np.argmax(request / self._scale))

    def share(self, request: Ints) -> float:
        """The share of the cluster's main resource that one instance takes (its dominant share)."""
        return float(np.max(request / self._scale, initial=0.0))


class _Room:
    """The number of instances of one request that fit on each machine, and the order in which machines are filled.

    rank: what would stay free of the main resource when the machine is filled, then what is free now; `_NO_ROOM` where
    nothing fits.
    """

    def __init__(self, request: Ints, mask: Mask, main: int) -> None:
        self.request = request
        self.mask = mask
        self.main = main
        self.fits: Ints = np.zeros(len(mask), dtype=np.int64)
        self.rank: Ints = np.full(len(mask), _NO_ROOM, dtype=np.int64)
        self.seen = 0

    def update(self, free: Ints, rows: Ints | None) -> None:
        part = free if rows is None else free[rows]
        mask = self.mask if rows is None else self.mask[rows]
        fits = count_fits(part, self.request, mask)
        if self.request.any():
            unit = self.request[self.main]
            left_over = part[:, self.main] - fits * unit if unit else fits * 0
            # In parts of one instance: finer differences do not matter.
            rank = np.minimum((left_over << 8) // max(int(unit), 1), 1 << 30) << 20
        else:
            rank = fits * 0
        rank = np.where(fits > 0, np.maximum(rank, 0) + np.minimum(fits, (1 << 20) - 1), _NO_ROOM)
        if rows is None:
            self.fits, self.rank = fits, rank
        else:
            self.fits[rows] = fits
            self.rank[rows] = rank

    def fork(self) -> _Room:
        copy = _Room.__new__(_Room)
        copy.__dict__.update(self.__dict__)
        copy.fits, copy.rank, copy.seen = self.fits.copy(), self.rank.copy(), 0
        return copy


def count_fits(free: Ints, request: Ints, mask: Mask) -> Ints:
    asked = np.flatnonzero(request)
    if not len(asked):
        return np.where(mask, _EVERYWHERE, 0)
    room: Ints = free[:, asked[0]] // request[asked[0]]
    for column in asked[1:]:
        room = np.minimum(room, free[:, column] // request[column])
    return np.where(mask, np.maximum(room, 0), 0)
