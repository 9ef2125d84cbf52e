"""A queue of batches, made by a thread a few batches before they are needed.

The loop must wait for a batch *or* for a directive, so it checks whether one is `ready`, is nudged when one arrives,
and `take`s it; a caller that waits for nothing else just iterates. Errors of the making thread (in the feed, a corrupt
file) are raised where the batches are taken, with their traceback, after the batches before them.

Prefetching batches pays where the machine has cores to spare during the computation. Where the computation takes every
core, a second thread slows it down: OpenMP's threads wait for each other by spinning, and all of them wait for the one
that has to share its core. There a batch is made when it is taken, as in a plain loop, unless that takes too large a
part of the time (`Pace`).
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from elasticdl.worker.trainer import Batch, Shard

# Two would do to keep a model busy; a few more even out records of different size.
_AHEAD = 4
# A feed that hangs (in a network, in a device) must not make closing hang with it.
_CLOSE_SECONDS = 10.0


class Pace:
    """Whether to make batches ahead or when they are asked for, by what was seen of both costs."""

    # Making a batch takes at most this part of the time of computing with it, or it is worth a thread.
    WORTH_A_THREAD = 0.25
    # The number of batches measured; one that waited for a shard or at a barrier does not count.
    SEEN = 9
    # With prefetch, the two costs cannot be distinguished; so now and then it is tried without.
    TRY_AGAIN_AFTER = 1000

    def __init__(self, *, shares_cores: bool) -> None:
        self._shares_cores = shares_cores
        self._parts: deque[float] = deque(maxlen=self.SEEN)
        self._made_ahead = 0
        self.ahead = not shares_cores

    def prefetch_always(self) -> None:
        """There is another reason to make them ahead."""
        self._shares_cores = False
        self.ahead = True

    def made(self, *, making: float, computing: float) -> None:
        """Notes the seconds of making a batch, and of computing with the one before."""
        if not self._shares_cores:
            return
        if self.ahead:
            self._made_ahead += 1
            if self._made_ahead >= self.TRY_AGAIN_AFTER:
                self.ahead = False
            return
        self._parts.append(making / max(computing, 1e-9))
        if len(self._parts) == self.SEEN and statistics.median(self._parts) > self.WORTH_A_THREAD:
            self.ahead = True
            self._made_ahead = 0
            self._parts.clear()


class _Queue:
    """The state the two sides share. It does not know the iterator, which can thus be garbage-collected."""

    def __init__(self, source: Iterator[Batch], pace: Pace) -> None:
        self.source = source
        self.pace = pace
        self.batches: deque[Batch] = deque()
        self.changed = threading.Condition()
        self.nudge: Callable[[], None] = lambda: None
        # The consumer waits for a batch that is not there.
        self.wanted = False
        self.computing = 0.0
        self.taken_at = time.perf_counter()
        self.making = False
        self.closed = False
        self.ended = False
        self.error: BaseException | None = None

    def want(self) -> None:
        """To be called with the lock, where there is no batch."""
        if not self.wanted and not self.ended:
            self.wanted = True
            self.computing = time.perf_counter() - self.taken_at
            self.changed.notify_all()

    def pop(self) -> Batch:
        self.taken_at = time.perf_counter()
        self.changed.notify_all()
        return self.batches.popleft()

    def wait_for_room(self) -> bool:
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.closed
                    or (not self.batches and self.wanted)
                    or (self.pace.ahead and len(self.batches) < _AHEAD)
                )
            )
            self.making = not self.closed
            return self.making

    def put(self, batch: Batch, seconds: float) -> None:
        with self.changed:
            self.making = False
            if not self.closed:
                self.pace.made(making=seconds, computing=self.computing)
                self.batches.append(batch)
                self.wanted = False
            self.changed.notify_all()
        self.nudge()

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.making, self.ended = False, True
            self.error = None if self.closed else error
            self.changed.notify_all()
        self.nudge()


class BatchQueue(Iterator[Batch]):
    """The batches of `source`, in order.

    Its `close` is called when no more are wanted, possibly while the thread is in its `next`, which then should end.
    As long as it is `reading`, closing this waits for it, so that what it reads from can be used again; where it is
    waiting for a shard it is left behind.
    """

    def __init__(self, source: Iterator[Batch], *, pace: Pace | None = None) -> None:
        self._queue = _Queue(source, pace or Pace(shares_cores=False))
        self._source = source
        self._thread = threading.Thread(target=_fill, args=(self._queue,), name="read-ahead", daemon=True)
        self._thread.start()

    def listen(self, nudge: Callable[[], None]) -> None:
        """`nudge` is called whenever `ready` may have become true."""
        self._queue.nudge = nudge
        nudge()

    def ready(self) -> bool:
        """Whether a batch is there, or none will come. If not, the consumer is going to wait for one."""
        with self._queue.changed:
            if not self._queue.batches:
                self._queue.want()
            return bool(self._queue.batches) or self._queue.ended

    def prefetch_always(self) -> None:
        """Prefetches from now on, whatever that costs: the next batch must be known."""
        with self._queue.changed:
            self._queue.pace.prefetch_always()
            self._queue.changed.notify_all()

    def upcoming(self) -> Batch | None:
        """The batch that will be taken next, if it is there already."""
        with self._queue.changed:
            return self._queue.batches[0] if self._queue.batches else None

    def take(self) -> Batch | None:
        """The next batch; None when all are taken. Raises what the reading raised."""
        with self._queue.changed:
            if self._queue.batches:
                return self._queue.pop()
            error, self._queue.error = self._queue.error, None
        if error is not None:
            raise error
        return None

    def __next__(self) -> Batch:
        queue = self._queue
        with queue.changed:
            if not queue.batches:
                queue.want()
            queue.changed.wait_for(lambda: queue.batches or queue.ended or queue.closed)
        batch = None if queue.closed else self.take()
        if batch is None:
            raise StopIteration
        return batch

    @property
    def failed_shard(self) -> Shard | None:
        """The shard whose reading raised the error, where the source can tell."""
        return getattr(self._source, "failed_shard", None) if self._queue.ended else None

    def close(self) -> None:
        """Closes the queue. Any thread may call this, also while another waits for a batch: that one sees the end."""
        queue = self._queue
        with queue.changed:
            queue.closed = True
            queue.batches.clear()
            queue.changed.notify_all()
        _close(self._source)
        with queue.changed:
            queue.changed.wait_for(
                lambda: not queue.making or not getattr(self._source, "reading", False),
                timeout=_CLOSE_SECONDS,
            )

    def __del__(self) -> None:
        self._queue.closed = True
        if self._queue.changed.acquire(blocking=False):
            self._queue.changed.notify_all()
            self._queue.changed.release()


def prefetch_batches(batches: Iterator[Batch], nudge: Callable[[], None]) -> BatchQueue:
    """Wraps batches that a trainer prefetches itself, with a callback for new ones."""
    ahead = batches if isinstance(batches, BatchQueue) else BatchQueue(batches)
    ahead.listen(nudge)
    return ahead


def _fill(queue: _Queue) -> None:
    error: BaseException | None = None
    try:
        while queue.wait_for_room():
            began = time.perf_counter()
            batch = next(queue.source, None)
            if batch is None:
                break
            queue.put(batch, time.perf_counter() - began)
            del batch
    except BaseException as raised:  # noqa: BLE001 - whatever it is, it is raised where the batches are taken
        error = raised
    queue.end(error)
    if queue.closed:
        _close(queue.source)


def _close(source: object) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        # A generator that is running in the other thread cannot be closed from here.
        with contextlib.suppress(ValueError):
            close()
