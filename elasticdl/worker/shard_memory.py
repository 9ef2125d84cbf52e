"""What a worker remembers of its shards by itself, for a master that has forgotten them.

A master that comes back without its journal knows the state of some seconds ago. Its workers know the rest, each its
own: which shards it got, how far it is with them, which ones it gave up. They are kept here for about a minute after
their end, much longer than the master's snapshots are apart; while the master is away nothing is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.wire import master_pb2 as pb

if TYPE_CHECKING:
    from elasticdl.worker.trainer import Shard

KEPT_SECONDS = 60.0


@dataclass(kw_only=True)
class _Entry:
    told: pb.ToldShard
    ended_at: float | None = None


class ShardMemory:
    """Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._sizes: dict[str, int] = {}
        self._generation = 0
        # Leases that the master says are not ours any more.
        self.lost: set[int] = set()

    def announced(self, dataset: str, size: int) -> None:
        with self._lock:
            self._sizes[dataset] = size

    def start_generation(self, generation: int) -> None:
        """What was done before belongs to a model that is gone."""
        with self._lock:
            self._generation = generation
            self._entries.clear()
            self.lost.clear()

    def leased(self, dataset: str, shard: Shard) -> None:
        told = pb.ToldShard(
            lease_id=shard.lease_id,
            dataset=dataset,
            epoch=shard.epoch,
            start=shard.start,
            position=shard.start,
            end=shard.end,
            held=True,
        )
        with self._lock:
            self._entries[shard.lease_id] = _Entry(told=told)

    def moved(self, lease_id: int, *, position: int, batches: int, atomic: bool) -> None:
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is not None:
                entry.told.position = max(entry.told.position, position)
                entry.told.batches = max(entry.told.batches, batches)
                entry.told.atomic = entry.told.atomic or atomic

    def ends_at(self, lease_id: int, end: int) -> None:
        """The worker has agreed to give up what lies behind."""
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is not None:
                entry.told.end = min(entry.told.end, end)

    def over(self, lease_id: int) -> None:
        """Nothing more is done of it."""
        with self._lock:
            entry = self._entries.get(lease_id)
            if entry is not None and entry.ended_at is None:
                entry.told.held = False
                entry.ended_at = self._clock()

    def lose(self, leases: list[int]) -> None:
        with self._lock:
            self.lost.update(leases)
            for lease_id in leases:
                self._entries.pop(lease_id, None)

    def answered(self) -> None:
        """The master is there: it has a newer snapshot than one of a minute ago."""
        limit = self._clock() - KEPT_SECONDS
        with self._lock:
            old = [i for i, e in self._entries.items() if e.ended_at is not None and e.ended_at < limit]
            for lease_id in old:
                del self._entries[lease_id]

    def request(self, node: str, directive: pb.Directive) -> pb.TellRequest:
        with self._lock:
            return pb.TellRequest(
                node=node,
                generation=self._generation,
                seen_generation=max(self._generation, directive.generation),
                cut=max(directive.cut_wanted, directive.cut_passed),
                sizes=self._sizes,
                epochs_ended=directive.epochs_ended,
                shards=[entry.told for entry in self._entries.values()],
            )
