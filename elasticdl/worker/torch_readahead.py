"""Batches made in the background, a few ahead of the one that is being computed with.

One thread takes shards, runs the feed and puts batches into a short queue. What it raises (an error in the
feed, a corrupt file) is raised where the batches are taken, with the traceback it had, after the batches
before it.

Closing may be done by any thread, also while another waits for a batch: that one sees the end of the
iteration. It
returns when the reading thread has let go of the reader, so that the same reader can be used again; where the
thread is waiting for a shard it is left behind to end as soon as it gets one, which it then does not touch.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from elasticdl.worker.torch_data import Stop
from elasticdl.worker.trainer import Batch, Shard

# Two would do to keep a model busy; a few more even out records of different size.
_AHEAD = 4
# A feed that hangs (in a network, in a device) must not make closing hang with it.
_CLOSE_SECONDS = 10.0


class _Queue:
    """The state the two sides share. It does not know the iterator, which can thus be garbage-collected."""

    def __init__(self) -> None:
        self.stop = Stop()
        self.batches: deque[Batch] = deque()
        self.changed = threading.Condition()
        self.ended = False
        self.reading = False
        self.shard: Shard | None = None
        self.error: BaseException | None = None

    def put(self, batch: Batch) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: len(self.batches) < _AHEAD or self.stop.wanted)
            if not self.stop.wanted:
                self.batches.append(batch)
                self.changed.notify_all()
            return not self.stop.wanted

    def mark(self, *, reading: bool, shard: Shard | None = None) -> bool:
        with self.changed:
            self.reading = reading and not self.stop.wanted
            self.shard = shard
            self.changed.notify_all()
            return not self.stop.wanted

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.ended, self.reading, self.error = True, False, error
            self.changed.notify_all()


class ReadAhead(Iterator[Batch]):
    """The batches of shards, in order. `make` gives those of one shard."""

    def __init__(self, shards: Iterable[Shard], make: Callable[[Shard, Stop], Iterator[Batch]]) -> None:
        self._queue = _Queue()
        self._shards = shards
        self._thread = threading.Thread(
            target=_fill, args=(self._queue, shards, make), name="read-ahead", daemon=True
        )
        self._thread.start()

    def __next__(self) -> Batch:
        queue = self._queue
        with queue.changed:
            queue.changed.wait_for(lambda: queue.batches or queue.ended or queue.stop.wanted)
            if queue.stop.wanted:
                raise StopIteration
            if queue.batches:
                batch = queue.batches.popleft()
                queue.changed.notify_all()
                return batch
            error, queue.error = queue.error, None
        if error is not None:
            raise error
        raise StopIteration

    @property
    def failed_shard(self) -> Shard | None:
        """The shard whose reading raised the error."""
        return self._queue.shard if self._queue.ended else None

    def close(self) -> None:
        queue = self._queue
        with queue.changed:
            queue.stop.wanted = True
            queue.batches.clear()
            queue.changed.notify_all()
        close = getattr(self._shards, "close", None)
        if close is not None:
            # A generator that is waiting in the other thread cannot be closed from here.
            with contextlib.suppress(ValueError):
                close()
        with queue.changed:
            queue.changed.wait_for(lambda: not queue.reading, timeout=_CLOSE_SECONDS)

    def __del__(self) -> None:
        self._queue.stop.wanted = True
        if self._queue.changed.acquire(blocking=False):
            self._queue.changed.notify_all()
            self._queue.changed.release()


def _fill(queue: _Queue, shards: Iterable[Shard], make: Callable[[Shard, Stop], Iterator[Batch]]) -> None:
    try:
        for shard in shards:
            if not queue.mark(reading=True, shard=shard):
                break
            if not all(queue.put(batch) for batch in make(shard, queue.stop)):
                break
            queue.mark(reading=False)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the batches are taken
        queue.end(error)
    else:
        queue.end(None)
