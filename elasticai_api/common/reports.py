"""Reports the progress of shards to the master, without blocking the training.

A thread sends what was noted, one report at a time, at most five a second, and less often with many workers (pace.py);
notes made meanwhile, ends of shards included, go with the next report. A report that is due soon goes along with a
request for a shard: waking the master costs more than its work for a report. `flush` waits until all notes are
acknowledged: before a worker takes the lack of a shard for the end of the data, and when it exits. The same thread
gives back prefetched shards that are not used (supply.py).

While the master does not answer, reports wait. An error that ends the reporting for good is raised to the program by
its next call here.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence

from elasticai_api.common.master import Master, ShardProgress
from elasticai_api.common.pace import pause_seconds
from elasticai_api.common.supply import IDLE_SECONDS, Supply
from elasticai_api.errors import ElasticError, MasterError

log = logging.getLogger("elasticai_api")

# A report costs the master about what a small batch costs a worker.
_LEAST_PAUSE_SECONDS = 0.2
# At the end of the program. A master that restarts is back long before; one that is gone needs no report.
_END_SECONDS = 30.0


class Reports:
    """The reports on one data set."""

    def __init__(self, master: Master, dataset: str, supply: Supply) -> None:
        self._master = master
        self._dataset = dataset
        self._supply = supply
        self._lost: list[int] = []
        self._moved = threading.Condition()
        self._progress: dict[int, ShardProgress] = {}
        self._given_back: list[int] = []
        self._step: int | None = None
        self._loss: float | None = None
        self._hurry = False
        self._awaits_turn = False
        self._sending = False
        self._sent_at = 0.0
        self._pause_seconds = pause_seconds(_LEAST_PAUSE_SECONDS)
        self._closed = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        # A process forked off this one has the notes, but not the thread.
        self._process = os.getpid()

    def note(self, shards: Sequence[ShardProgress]) -> None:
        """Shards have come this far."""
        if not shards:
            self.check()
            return
        with self._moved:
            for shard in shards:
                self._progress[shard.task_id] = shard
            self._noted()
        self._after_note()

    def give_back(self, task_ids: Sequence[int]) -> None:
        """These were fetched and will not be begun."""
        if not task_ids:
            return
        with self._moved:
            self._given_back += task_ids
            self._noted()
        self._after_note()

    def watch_supply(self) -> None:
        """Notes that there are prefetched shards, which are given back if they stay unused."""
        with self._moved:
            self._noted()

    def note_step(self, step: int | None, loss: float | None = None) -> None:
        """Notes the progress of the training, for the job's status."""
        with self._moved:
            self._step = step if step is not None else self._step
            self._loss = loss if loss is not None else self._loss
            self._noted()
        self._after_note()

    def check(self) -> None:
        """Raises what ended the reporting, if something did."""
        if os.getpid() != self._process:
            raise MasterError("Shards are fetched and reported by the process that made the service.")
        if self._error is not None:
            raise self._error

    def is_empty(self) -> bool:
        """Whether the master has acknowledged every report. Raises the error that ended the reporting, if any."""
        self.check()
        with self._moved:
            return not (self._sending or self._pending())

    def take_lost(self) -> list[int]:
        """Shards that the master says are not this worker's any more; each is said once."""
        with self._moved:
            lost, self._lost = self._lost, []
            return lost

    def forget(self) -> None:
        """Forgets all noted progress in shards."""
        with self._moved:
            self._progress.clear()

    def go_along(self) -> None:
        """Sends pending reports before the next call to the master, if half of the interval has passed."""
        due = self._sent_at + max(_LEAST_PAUSE_SECONDS, self._pause_seconds / 2)
        with self._moved:
            if self._pending() and time.monotonic() >= due:
                self._hurry = True
                self._moved.notify_all()

    def flush(self, seconds: float | None = None) -> bool:
        """Waits until the master has acknowledged everything noted. Returns False after that many seconds."""
        self.check()
        with self._moved:
            self._hurry = self._pending()
            self._moved.notify_all()
            done = self._moved.wait_for(
                lambda: self._error is not None or not (self._sending or self._pending()), seconds
            )
        self.check()
        return done

    def close(self) -> None:
        """Flushes and ends the thread. Raises nothing: its callers cannot handle an error any more."""
        if os.getpid() != self._process:
            return
        try:
            if self._error is None:
                self.give_back(self._supply.clear())
            if self._error is None and not self.flush(_END_SECONDS):
                log.warning("The master did not acknowledge the last report on %s.", self._dataset)
        except ElasticError as error:
            log.warning("The last report on %s failed: %s", self._dataset, error)
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def _noted(self) -> None:
        if self._thread is None and self._master.remote:
            self._thread = threading.Thread(target=self._run, name="elasticai reports", daemon=True)
            self._thread.start()
        # While the thread waits for its next turn it needs no word of every batch.
        if self._hurry or not self._awaits_turn:
            self._moved.notify_all()

    def _after_note(self) -> None:
        if not self._master.remote:
            try:
                self._send()
            finally:
                self._sending = False
        self.check()

    def _pending(self) -> bool:
        return bool(self._progress or self._given_back) or self._step is not None or self._loss is not None

    def _run(self) -> None:
        while True:
            with self._moved:
                while not self._pending():
                    if self._closed:
                        return
                    self._moved.wait(IDLE_SECONDS if self._supply else None)
                    self._given_back += self._supply.clear_idle()
                pause = self._sent_at + self._pause_seconds - time.monotonic()
                self._awaits_turn = True
                self._moved.wait_for(lambda: self._hurry or self._closed, max(pause, 0.0))
                self._awaits_turn = False
            try:
                self._send()
            # Every error must reach the program, and end the waiting for this thread.
            except BaseException as error:  # noqa: BLE001
                with self._moved:
                    self._error = error
                    self._sending = False
                    self._moved.notify_all()
                return

    def _send(self) -> None:
        with self._moved:
            self._given_back += self._supply.clear_idle()
            shards, given_back, step, loss = (
                list(self._progress.values()),
                self._given_back,
                self._step,
                self._loss,
            )
            self._progress, self._given_back, self._step, self._loss = {}, [], None, None
            self._sending = True
            self._hurry = False
            self._sent_at = time.monotonic()
        lost = self._master.progress(
            self._dataset, shards, global_step=step, loss=loss, given_back=given_back
        )
        if lost:
            log.warning("Shards %s of %s were requeued or leased to another worker.", lost, self._dataset)
        with self._moved:
            self._lost += lost
            self._sending = False
            self._moved.notify_all()
