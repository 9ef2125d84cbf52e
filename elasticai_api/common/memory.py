"""What a worker remembers of its shards by itself, for a master that has lost its journal and come back.

Such a master knows how things were some seconds ago; the rest is known to its workers, each for itself. Shards are kept
here for about a minute after their end, much longer than the master's snapshots are apart. While the master is away
nothing is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from elasticai_api.common.master import DatasetParams, FetchedShard, ShardProgress
from elasticai_api.proto import progress_pb2

KEPT_SECONDS = 60.0


class ShardMemory:
    """The shards of one worker. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._announced: dict[str, DatasetParams] = {}
        self._shards: dict[int, progress_pb2.ToldShard] = {}
        self._ended: dict[int, float] = {}

    def announced(self, params: DatasetParams) -> None:
        """The program has such a data set."""
        with self._lock:
            self._announced[params.name] = params

    def datasets(self) -> list[DatasetParams]:
        """All that the program has announced."""
        with self._lock:
            return list(self._announced.values())

    def fetched(self, shards: Iterable[FetchedShard]) -> None:
        """The master has given these out."""
        with self._lock:
            for shard in shards:
                given = shard.task.shard
                self._shards[shard.task.task_id] = progress_pb2.ToldShard(
                    task_id=shard.task.task_id,
                    dataset_name=given.name,
                    epoch=shard.epoch,
                    start=given.start,
                    position=given.start,
                    end=given.end,
                    held=True,
                )
            limit = self._clock() - KEPT_SECONDS
            for task_id in [task_id for task_id, at in self._ended.items() if at < limit]:
                del self._ended[task_id]
                self._shards.pop(task_id, None)

    def moved(self, shards: Sequence[ShardProgress]) -> None:
        """Shards have come this far."""
        with self._lock:
            for progress in shards:
                told = self._shards.get(progress.task_id)
                if told is None:
                    continue
                told.position = max(told.position, min(progress.position, told.end))
                told.batches = max(told.batches, progress.batches)
                if progress.ended:
                    self._end(told)

    def given_up(self, task_ids: Iterable[int]) -> None:
        """Nothing more is done of these."""
        with self._lock:
            for task_id in task_ids:
                if task_id in self._shards:
                    self._end(self._shards[task_id])

    def lost(self, task_ids: Iterable[int]) -> None:
        """These are not this worker's any more."""
        with self._lock:
            for task_id in task_ids:
                self._shards.pop(task_id, None)
                self._ended.pop(task_id, None)

    def forget(self, dataset: str) -> None:
        """The data set was set back: what was done of it does not count."""
        with self._lock:
            for task_id in [i for i, told in self._shards.items() if told.dataset_name == dataset]:
                del self._shards[task_id]
                self._ended.pop(task_id, None)

    def told(self) -> list[progress_pb2.ToldShard]:
        """All of it."""
        with self._lock:
            return [
                progress_pb2.ToldShard.FromString(told.SerializeToString()) for told in self._shards.values()
            ]

    def _end(self, told: progress_pb2.ToldShard) -> None:
        told.held = False
        self._ended.setdefault(told.task_id, self._clock())
