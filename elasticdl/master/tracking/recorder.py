"""Sends the scalars of a job to an experiment tracker without ever delaying the job.

The master puts points into a bounded queue; a thread sends them. What fails is repeated with backoff for as long as the
job runs, and for some seconds after its end.

Failure modes
    The tracker is away: a warning in the log, once, and points wait in the queue; when it is full the oldest are
    dropped. The tracker rejects points: they are dropped. Dropped points are counted, and `report` says how many at the
    end of the job. The master is killed: what is in the queue is lost, usually the points of the last request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from elasticdl.backoff import Backoff
from elasticdl.master.tracking.tracker import Point, Run, RunEnd, Tracker, TrackerError

log = logging.getLogger("elasticdl.master")

# A few MB, and an hour of a job that reports three times a second.
_CAPACITY = 10_000
_POINTS_OF_A_REQUEST = 250
_BACKOFF = Backoff(initial_seconds=1.0, max_seconds=30.0)
# At the end of the job, which waits.
_LAST_RETRIES = Backoff(initial_seconds=0.5, max_seconds=1.0)
_SLOW_SECONDS = 60.0
_LONGEST_REASON = 300


class Recorder:
    """A run on a tracker. A sink of scalars (`ScalarSink`)."""

    def __init__(
        self,
        tracker: Tracker,
        run: Run,
        *,
        capacity: int = _CAPACITY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tracker = tracker
        self._run = run
        self._capacity = capacity
        self._now = now
        self._changed = threading.Condition()
        self._waiting: deque[Point] = deque()
        # Taken from the queue, and not yet acknowledged.
        self._sending: list[Point] = []
        self._end: RunEnd | None = None
        self._is_open = False
        self._is_over = False
        self._retry_now = False
        self._failures = 0
        self._has_rejected = False
        self._dropped = 0
        self._place = ""
        self._reason = ""
        self._thread = threading.Thread(target=self._send_all, name=f"record to {tracker.name}", daemon=True)

    # -- called by the master, never blocking ----------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        point = Point(step=step, time=self._now(), values=dict(values))
        with self._changed:
            if self._is_over:
                self._dropped += 1
                return
            if len(self._waiting) + len(self._sending) >= self._capacity:
                self._dropped += 1
                if not self._waiting:
                    return
                self._waiting.popleft()
            self._waiting.append(point)
            self._changed.notify_all()

    def end(self, end: RunEnd) -> None:
        """The job is over: no more points come."""
        with self._changed:
            self._end = end
            self._retry_now = True
            self._changed.notify_all()

    def report(self) -> tuple[str, ...]:
        """Lines for the end of the job: where the run is, and what is missing in it."""
        with self._changed:
            lines = [f"{self._tracker.name}: {self._place}"] if self._place else []
            because = f": {self._reason}" if self._reason else ""
            if self._dropped:
                noun = "batch was" if self._dropped == 1 else "batches were"
                lines.append(f"{self._tracker.name}: {self._dropped} metric {noun} not recorded{because}")
            if self._is_over and self._end is not None:
                lines.append(f"{self._tracker.name}: the end of the job was not recorded{because}")
            return tuple(lines)

    # -- blocking --------------------------------------------------------------------------------------------

    def wait(self, timeout_seconds: float) -> None:
        """Waits after `end` until everything is sent, and discards the rest at the timeout.

        A tracker that is slow and reports no error has a minute more: it may have been opened a moment ago.
        """
        self._thread.join(timeout_seconds)
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._failures, _SLOW_SECONDS)
            if not self._is_over:
                self._dropped += len(self._waiting) + len(self._sending)
                self._waiting.clear()
                self._is_over = self._retry_now = True
                self._changed.notify_all()
            is_incomplete = self._dropped or self._end is not None
        if is_incomplete:
            for line in self.report():
                log.warning("%s", line)

    # -- the thread ------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        while True:
            delay = self.advance()
            with self._changed:
                if self._is_over:
                    return
                if delay:
                    self._changed.wait_for(lambda: self._retry_now, delay)
                    self._retry_now = False
                else:
                    self._changed.wait_for(self._has_work)

    def _has_work(self) -> bool:
        return bool(self._waiting or self._sending) or self._end is not None or self._is_over

    def advance(self) -> float:
        """Makes the next request, if there is one to make. Returns the seconds to wait after it: 0 if it succeeded."""
        request = self._next_request()
        if request is None:
            return 0.0
        try:
            request()
        except TrackerError as error:
            return self._note_failure(error)
        except Exception as error:  # noqa: BLE001 - an unknown error of a client library must not end the thread
            return self._note_failure(TrackerError(f"{type(error).__name__}: {error}"))
        if self._failures:
            log.info("Recording to %s again, after %d errors", self._tracker.name, self._failures)
            self._failures = 0
        return 0.0

    def _next_request(self) -> Callable[[], None] | None:
        with self._changed:
            if self._is_over:
                return None
            if not self._is_open:
                return self._open
            if not self._sending:
                count = min(len(self._waiting), _POINTS_OF_A_REQUEST)
                self._sending = [self._waiting.popleft() for _ in range(count)]
            if self._sending:
                return self._record
            return self._close if self._end is not None else None

    def _open(self) -> None:
        place = self._tracker.open(self._run)
        log.info("Recording to %s: %s", self._tracker.name, place)
        with self._changed:
            self._is_open, self._place = True, place

    def _record(self) -> None:
        self._tracker.record(self._sending)
        with self._changed:
            self._sending = []

    def _close(self) -> None:
        assert self._end is not None
        self._tracker.close(self._end)
        with self._changed:
            self._end, self._is_over = None, True
            self._changed.notify_all()

    def _note_failure(self, error: TrackerError) -> float:
        with self._changed:
            self._reason = str(error)[:_LONGEST_REASON]
            if error.is_permanent and self._sending:
                count, self._sending = len(self._sending), []
                if not self._is_over:
                    self._dropped += count
                if not self._has_rejected:
                    log.warning(
                        "Dropping metric batches: %s rejects them: %s", self._tracker.name, self._reason
                    )
                self._has_rejected = True
                return 0.0
            self._failures += 1
            self._changed.notify_all()
            if self._failures == 1:
                log.warning("Recording to %s fails and is retried: %s", self._tracker.name, self._reason)
            backoff = _BACKOFF if self._end is None else _LAST_RETRIES
            return backoff.delay(self._failures)
