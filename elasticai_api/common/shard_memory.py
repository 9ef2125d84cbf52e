"""The shards that a worker remembers, for a master that lost its journal.

Such a master recovers a snapshot that is some seconds old; its workers know what happened since, each its own part:
which shards it got, how far it is, which ones it gave up. Ended shards are kept for about a minute, much longer than
the time between two snapshots. They expire only when the master answers, so nothing is dropped while the master is
away.

Used by programs with their own training loop (`master_client.py`) and by ElasticDL's own workers, each with its own
messages to the master.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

KEPT_SECONDS = 60.0


@dataclass(kw_only=True)
class RememberedShard:
    """A shard that this worker has had, with its progress."""

    shard_id: int
    dataset: str
    epoch: int
    start: int
    # Done up to here.
    position: int
    end: int
    batches: int = 0
    atomic: bool = False
    # Being worked on; else it has ended, and what is not done of it was given up.
    is_held: bool = True
    ended_at: float | None = None
    # As the master gave it with the shard: not for programs.
    applied: bytes = b""


class ShardMemory:
    """The shards of one worker. Safe to call from several threads; unknown ids are ignored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shards: dict[int, RememberedShard] = {}

    def add(
        self, shard_id: int, *, dataset: str, epoch: int, start: int, end: int, applied: bytes = b""
    ) -> None:
        """Adds a shard that the master has just given to this worker."""
        shard = RememberedShard(
            shard_id=shard_id,
            dataset=dataset,
            epoch=epoch,
            start=start,
            position=start,
            end=end,
            applied=applied,
        )
        with self._lock:
            self._shards[shard_id] = shard

    def advance(self, shard_id: int, *, position: int, batches: int, atomic: bool = False) -> None:
        """Samples before `position` are done, in so many batches. Never goes back."""
        with self._lock:
            shard = self._shards.get(shard_id)
            if shard is not None:
                shard.position = max(shard.position, min(position, shard.end))
                shard.batches = max(shard.batches, batches)
                shard.atomic = shard.atomic or atomic

    def truncate(self, shard_id: int, end: int) -> None:
        """The worker has given up the samples from `end` on."""
        with self._lock:
            shard = self._shards.get(shard_id)
            if shard is not None:
                shard.end = min(shard.end, end)

    def end(self, shard_ids: Iterable[int]) -> None:
        """The worker does no more of these: they are done, or given up."""
        with self._lock:
            for shard_id in shard_ids:
                shard = self._shards.get(shard_id)
                if shard is not None and shard.is_held:
                    shard.is_held = False
                    shard.ended_at = self._clock()

    def drop(self, shard_ids: Iterable[int]) -> None:
        """Drops shards that the master has given to another worker."""
        with self._lock:
            for shard_id in shard_ids:
                self._shards.pop(shard_id, None)

    def drop_dataset(self, dataset: str) -> None:
        """Drops the shards of a data set that was reset: what was done of it does not count."""
        with self._lock:
            self._shards = {i: shard for i, shard in self._shards.items() if shard.dataset != dataset}

    def clear(self) -> None:
        with self._lock:
            self._shards = {}

    def expire(self) -> None:
        """The master has answered, so it has a snapshot newer than the oldest shards: drops these."""
        limit = self._clock() - KEPT_SECONDS
        with self._lock:
            old = [i for i, s in self._shards.items() if s.ended_at is not None and s.ended_at < limit]
            for shard_id in old:
                del self._shards[shard_id]

    def shards(self) -> list[RememberedShard]:
        """A copy of all of them, in the order in which they came."""
        with self._lock:
            return [replace(shard) for shard in self._shards.values()]
