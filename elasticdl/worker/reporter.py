"""Reports the progress of shards to the master, without blocking the training.

Batches are noted here, and a thread sends them, one report at a time, at a rate that depends on the use of reports and
is limited for all workers together (`elasticai_api.common.pace`): later notes go with the next report. The end of a
shard is reported at once, since others may wait for it. `flush` waits until all notes are acknowledged: before a
barrier, and before the exit.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque

import grpc

from elasticai_api.common.pace import pause_seconds
from elasticdl.data.reader import BadRange
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.scalars import take_scalars

# A report costs the master about what a small batch costs a worker. On parameter servers a batch that was not yet
# reported when its worker died is known to them; elsewhere it is lost with the model it was trained into.
_LEAST_PAUSE_SECONDS = 0.25


class Reporter:
    def __init__(self, link: MasterLink) -> None:
        self._link = link
        self._moved = threading.Condition()
        self._progress: dict[int, pb.Progress] = {}
        self._bad: list[pb.BadRange] = []
        self._loss_sum = 0.0
        self._loss_batches = 0
        self._stop_training = False
        # Reported, and not yet.
        self._skipped_batches, self._has_skipped = 0, False
        self._seconds: deque[float] = deque(maxlen=50)
        self._generation = 0
        self._sending = False
        self._hurry = False
        self._sent_at = 0.0
        self._pause_seconds = pause_seconds(_LEAST_PAUSE_SECONDS)
        self._number = 0
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def start_generation(self, generation: int) -> None:
        """Discards notes on a model that was replaced."""
        with self._moved:
            self._progress.clear()
            self._loss_sum, self._loss_batches = 0.0, 0
            self._generation = generation
        self._link.memory.start_generation(generation)

    def note(
        self,
        *,
        lease_id: int,
        position: int,
        batches: int,
        atomic: bool,
        loss: float | None = None,
        seconds: float = 0.0,
        last: bool = True,
    ) -> None:
        """`last`: the shard is gone through with this batch."""
        self._link.memory.shards.advance(lease_id, position=position, batches=batches, atomic=atomic)
        if last:
            self._link.memory.shards.end([lease_id])
        with self._moved:
            # The sender waits for the first report, and then for a reason to hurry.
            news = last or not self._progress
            self._hurry = self._hurry or last
            self._progress[lease_id] = pb.Progress(
                lease_id=lease_id, position=position, batches=batches, atomic=atomic
            )
            if loss is not None:
                self._loss_sum += loss
                self._loss_batches += 1
            if seconds > 0:
                self._seconds.append(seconds)
            if news:
                self._moved.notify_all()

    def note_bad(self, bad: tuple[BadRange, ...], dataset: str) -> None:
        """Samples that could not be read and were left out."""
        with self._moved:
            self._bad += to_wire(bad, dataset)
            self._hurry = True
            self._moved.notify_all()

    def note_skipped(self, batches: int) -> None:
        """Batches that this worker has skipped so far, since they were not finite."""
        if batches != self._skipped_batches:
            with self._moved:
                self._skipped_batches = batches
                self._hurry = self._has_skipped = True
                self._moved.notify_all()

    def ask_to_stop(self) -> None:
        """A callback wants the training to end."""
        with self._moved:
            self._stop_training = self._hurry = True
            self._moved.notify_all()

    @property
    def lost(self) -> set[int]:
        """Leases that the master says are not ours any more."""
        return self._link.memory.lost

    @property
    def failed(self) -> bool:
        return self._error is not None

    def check(self) -> None:
        """Raises what ended the reporting, if something did."""
        if self._error is not None:
            raise self._error

    def flush(self) -> None:
        with self._moved:
            self._hurry = True
            self._moved.notify_all()
            self._moved.wait_for(lambda: self.failed or (not self._pending() and not self._sending))
        self.check()

    def _pending(self) -> bool:
        return bool(self._progress or self._bad or self._stop_training or self._has_skipped)

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._pending() or self._closed)
                if not self._pending():
                    return
                pause = self._sent_at + self._pause_seconds - time.monotonic()
                self._moved.wait_for(lambda: self._hurry or self._closed, max(pause, 0.0))
                request = self._take()
            try:
                reply = self._link.call(self._link.stub.Report, request)
            except grpc.RpcError as error:
                with self._moved:
                    self._error = error
                    self._moved.notify_all()
                # Threads that wait for something else must see the error too: nothing that is done now would count.
                self._link.nudge()
                return
            with self._moved:
                if request.generation == self._generation:
                    self._link.memory.lose(list(reply.lost_leases))
                self._link.memory.shards.expire()
                self._sending = False
                self._moved.notify_all()

    def _take(self) -> pb.ReportRequest:
        self._number += 1
        self._sending = True
        self._hurry = False
        self._sent_at = time.monotonic()
        request = pb.ReportRequest(
            node=self._link.node,
            generation=self._generation,
            progress=list(self._progress.values()),
            bad_records=self._bad,
            loss_sum=self._loss_sum,
            loss_batches=self._loss_batches,
            stop_training=self._stop_training,
            report_id=self._number,
            batch_seconds=statistics.median(self._seconds) if self._seconds else 0.0,
            skipped_batches=self._skipped_batches,
            scalars=take_scalars(),
        )
        self._progress = {}
        self._bad = []
        self._loss_sum, self._loss_batches = 0.0, 0
        self._stop_training = self._has_skipped = False
        return request

    def close(self) -> None:
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        self._thread.join()


def to_wire(bad: tuple[BadRange, ...], dataset: str) -> list[pb.BadRange]:
    return [
        pb.BadRange(dataset=dataset, start=b.start, end=b.end, where=b.where, reason=b.reason) for b in bad
    ]
