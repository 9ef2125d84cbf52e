"""The batches of consecutive shards, given the batches of one, and how to stop them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elasticdl.worker.trainer import Batch, Shard


@dataclass(kw_only=True)
class Stop:
    """Set from another thread when no more batches are needed."""

    wanted: bool = False


class ShardBatches(Iterator[Batch]):
    """The batches of shards, in order. `make` gives those of one shard."""

    def __init__(self, shards: Iterable[Shard], make: Callable[[Shard, Stop], Iterator[Batch]]) -> None:
        self._shards = shards
        self._stop = Stop()
        self._lock = threading.Lock()
        # A shard is being read; else one is being waited for.
        self.reading = False
        self.failed_shard: Shard | None = None
        self._batches = self._made(make)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """Stops the batches, from any thread: the present shard ends at its next record, and no other is begun."""
        with self._lock:
            self._stop.wanted = True
        close = getattr(self._shards, "close", None)
        if close is not None:
            # A generator that is waiting in another thread cannot be closed from this one.
            with contextlib.suppress(ValueError):
                close()

    def _made(self, make: Callable[[Shard, Stop], Iterator[Batch]]) -> Iterator[Batch]:
        for shard in self._shards:
            with self._lock:
                self.reading = not self._stop.wanted
            if not self.reading:
                return
            try:
                yield from make(shard, self._stop)
            except Exception:
                self.failed_shard = shard
                raise
            finally:
                self.reading = False
            if self._stop.wanted:
                return
