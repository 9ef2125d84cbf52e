"""Batches read ahead for the loop, which has other things to listen to than the next batch.

A trainer's iterator blocks; the loop must wait for a batch *or* for a directive. So a thread takes from the
iterator and puts into a short queue, and the loop is nudged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from elasticdl.worker.trainer import Batch, Shard

# The trainers read ahead themselves; this only decouples.
_AHEAD = 2


class BatchQueue:
    def __init__(self, batches: Iterator[Batch], nudge: Callable[[], None]) -> None:
        self._batches = batches
        self._nudge = nudge
        self._queue: deque[Batch] = deque()
        self._room = threading.Condition()
        self._closed = False
        self.error: BaseException | None = None
        self.ended = False
        self._thread = threading.Thread(target=self._fill, name="batches", daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """A batch is there, or none will come."""
        return bool(self._queue) or self.ended

    def take(self) -> Batch | None:
        """The next batch; None when all are taken. Raises what the reading raised."""
        with self._room:
            if self._queue:
                batch = self._queue.popleft()
                self._room.notify()
                return batch
        if self.error is not None:
            raise self.error
        return None

    def failed_lease(self) -> int:
        """The shard that the reading failed on, where the trainer can tell; else 0."""
        shard: Shard | None = getattr(self._batches, "failed_shard", None)
        return shard.lease_id if shard is not None else 0

    def _fill(self) -> None:
        try:
            for batch in self._batches:
                with self._room:
                    self._room.wait_for(lambda: len(self._queue) < _AHEAD or self._closed)
                    if self._closed:
                        break
                    self._queue.append(batch)
                self._nudge()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the loop raises it where it is handled
            if not self._closed:
                self.error = error
        self.ended = True
        self._nudge()

    def close(self) -> None:
        """Stops reading. The iterator is closed too, which ends a thread that is blocked in it."""
        with self._room:
            self._closed = True
            self._queue.clear()
            self._room.notify_all()
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
