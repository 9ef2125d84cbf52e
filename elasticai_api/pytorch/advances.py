"""Tells the master how many steps are done, without making the training wait: ten times a second at most.

A report is a place in the order of the data, so only the newest matters, and a repeated one changes nothing.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque

from elasticai_api.errors import ElasticError
from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.pytorch.place import Place
from elasticai_api.pytorch.standings import Line

_PAUSE_SECONDS = 0.1


class Advances:
    def __init__(self, line: Line, *, generation: int, dataset: str, first_number: int = 0) -> None:
        self._line = line
        self._generation = generation
        self._dataset = dataset
        self._moved = threading.Condition()
        self._place: Place | None = None
        self._losses: list[float] = []
        self._seconds: deque[float] = deque(maxlen=50)
        self._bad: list[pb.Unreadable] = []
        self._stop = False
        self._hurry = False
        self._sending = False
        self._number = first_number
        self._sent_at = 0.0
        self._closed = False
        self._error: ElasticError | None = None
        self._thread = threading.Thread(target=self._run, name="advances", daemon=True)
        self._thread.start()

    @property
    def step_seconds(self) -> float:
        """Returns the usual duration of a step."""
        return statistics.median(self._seconds) if self._seconds else 0.0

    def note_seconds(self, seconds: float) -> None:
        """Records the duration of a step. On all members: each can say which duration is usual."""
        with self._moved:
            self._seconds.append(seconds)

    def note_loss(self, loss: float) -> None:
        with self._moved:
            self._losses.append(loss)

    def note(self, place: Place) -> None:
        """Everything before this place is done, by all members."""
        with self._moved:
            self._place = place
            self._moved.notify_all()

    def note_bad(self, bad: list[pb.Unreadable], place: Place) -> None:
        """Records unreadable samples. They are reported before the place that is beyond them."""
        with self._moved:
            self._bad += bad
            self._place = self._place or place
        self.flush()

    def ask_to_stop(self, place: Place) -> None:
        with self._moved:
            self._stop = True
            self._place = self._place or place
        self.flush()

    def flush(self) -> None:
        """Waits until the master has acknowledged everything noted."""
        with self._moved:
            self._hurry = True
            self._moved.notify_all()
            self._moved.wait_for(
                lambda: self._error is not None or self._closed or (self._place is None and not self._sending)
            )
            self._hurry = False
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._place is not None or self._closed)
                pause = self._sent_at + _PAUSE_SECONDS - time.monotonic()
                self._moved.wait_for(lambda: self._hurry or self._closed, max(0.0, pause))
                if self._closed:
                    return
                request = self._take()
            try:
                self._line.call(self._line.stub.Advance, request)
            except ElasticError as error:
                self._error = error
            with self._moved:
                self._sending = False
                self._moved.notify_all()

    def _take(self) -> pb.AdvanceRequest:
        assert self._place is not None
        self._number += 1
        self._sending = True
        self._sent_at = time.monotonic()
        request = pb.AdvanceRequest(
            worker=self._line.worker,
            generation=self._generation,
            dataset=self._dataset,
            epoch=self._place.epoch,
            at=self._place.at,
            step=self._place.step,
            loss_sum=sum(self._losses),
            loss_steps=len(self._losses),
            report_id=self._number,
            step_seconds=self.step_seconds,
            stop_training=self._stop,
            bad=self._bad,
        )
        self._place = None
        self._losses = []
        self._bad = []
        self._stop = False
        return request

    def close(self) -> int:
        """Returns the number of the last report: the numbers of a worker only grow."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        # It may be in the middle of a call to a master that is not there any more.
        self._thread.join(timeout=1.0)
        return self._number
