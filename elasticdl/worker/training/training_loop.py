"""The training loop of a worker that runs a model definition.

One thread computes; others lease and prefetch (`shard_source`, `batching`), report (`reporter`) and listen to the
master (`master_link`). Between two batches the computing thread reads the newest directive and executes, in this
order: exit, start another generation, wait at a barrier, end epochs for callbacks, shorten leases, evaluate, do a task;
and only then it trains the next batch.

Failure modes
    Killed: the master requeues the rest of the leases; the parameter servers report pushes that were not reported. The
    program raises: pending progress is reported, if that is quick, then the traceback and the lease; this process exits
    with 1. The definition cannot work (`UserError`): the master ends the job; exit code EXIT_DEFINITION_ERROR. Out of
    memory: exit code EXIT_OUT_OF_MEMORY.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from pathlib import Path

from elasticdl.data.reader import Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.checkpoint.checkpoint_folders import snapshot_name
from elasticdl.ps.core.server_errors import Abandoned, NotFound
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.batching.batch_queue import BatchQueue, prefetch_batches
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.model.export import export_model
from elasticdl.worker.model.model_store import LocalModel, Model
from elasticdl.worker.reporter import Reporter
from elasticdl.worker.scalars import scalar
from elasticdl.worker.scoring.evaluation import Evaluator
from elasticdl.worker.shard_source import LeasedShards
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.training.epoch_callbacks import EpochCallbacks
from elasticdl.worker.training.lease_progress import LeaseProgress
from elasticdl.worker.training.loss_log import LossLog
from elasticdl.worker.training.stall_watch import StallWatch

log = logging.getLogger("elasticdl.worker")

# How long the news of a lost model may take from the servers' side to the master's.
_DIRECTIVE_SECONDS = 1.0
# Between two readings of the learning rate.
_RATE_SECONDS = 1.0
# How long a program that has failed waits for its last reports to be answered. It need not succeed: of what was pushed
# the servers know.
_LAST_REPORT_SECONDS = 2.0


# Records that are read at once to find a sample: few at first, more where the feed leaves many out.
_FIRST_EXAMPLE_RECORDS, _MOST_EXAMPLE_RECORDS = 2, 1024


class TrainingLoop:
    def __init__(
        self,
        *,
        link: MasterLink,
        spec: JobSpec,
        trainer: Trainer,
        training: Reader,
        validation: Reader | None,
        token: str,
        last_report_seconds: float = _LAST_REPORT_SECONDS,
    ) -> None:
        self._link = link
        self._spec = spec
        self._trainer = trainer
        self._training = training
        self._validation = validation
        self._token = token
        self._last_report_seconds = last_report_seconds
        self._reporter = Reporter(link)
        self._evaluator = Evaluator(link, spec, trainer)
        self._generation = 0
        self._model: Model | None = None
        self._shards: LeasedShards | None = None
        self._queue: BatchQueue | None = None
        self._callbacks = EpochCallbacks(link, trainer, self._reporter, epochs=spec.training.num_epochs)
        self._leases = LeaseProgress()
        # The last barrier that this worker has reached.
        self._barrier = 0
        self._example: Batch | None = None
        # The serial number of the last directive that was done.
        self._done_serial = -1
        self._loss_log = LossLog(spec.training.log_loss_steps)
        self._rate_due = 0.0
        self._has_remarked = False
        self._stall_watch = StallWatch(spec.nodes.stall_floor_seconds if spec.nodes.stall_factor else 0.0)
        self.lease_id = 0

    def run(self) -> None:
        try:
            self._run()
        except Exception:
            if self._served:
                self._report_after_error()
            raise

    def _run(self) -> None:
        while True:
            try:
                if not self._step():
                    return
            except Abandoned:
                # The servers are of another generation already, or waiting for them has become pointless: the
                # directive that says so is here or on its way.
                self._link.wait(
                    lambda: self._link.directive().generation != self._generation, _DIRECTIVE_SECONDS
                )

    @property
    def _served(self) -> bool:
        """The model is on parameter servers, and does not end with this worker."""
        return self._model is not None and not isinstance(self._model, LocalModel)

    def _report_after_error(self) -> None:
        """Reports what is part of the model, after an error."""

        def say() -> None:
            assert self._model is not None
            for what in (self._model.settle, self._reporter.flush):
                try:
                    what()
                except Exception as error:  # noqa: BLE001 - the one before it is what counts
                    log.warning("After the error: %s: %s", type(error).__name__, error)

        # Calls to servers and to the master retry for longer than the exit should wait.
        words = threading.Thread(target=say, name="last-words", daemon=True)
        try:
            words.start()
        except (RuntimeError, MemoryError) as error:
            log.warning("Leaving unreported batches to the records of the parameter servers: %s", error)
        else:
            words.join(self._last_report_seconds)

    def _step(self) -> bool:
        """Does one thing. False when it was the last."""
        self._reporter.check()
        if self._model is not None and self._model.failed:
            self._model.settle()
        serial, directive = self._link.latest()
        if directive.finished or directive.drain:
            self._leave(directive)
            return False
        if directive.generation != self._generation:
            self._start_generation(directive)
        if directive.saved and self._model is not None:
            self._model.beginning = None
        if self._done_serial != serial and self._answer(directive, serial):
            return True
        if (
            self._queue is None
            or directive.barrier_requested > directive.barrier_passed
            or not self._queue.ready()
        ):
            self._wait_for_change()
            return True
        failed = self._queue.failed_shard
        self.lease_id = failed.lease_id if failed is not None else 0
        batch = self._queue.take()
        if batch is None:
            self._wait_for_change(until_directive=True)
        else:
            self._train(batch, directive)
        return True

    def _is_skipped(self, loss: float) -> bool:
        """The batch of this loss has no effect; the mean of the others says more without it."""
        return not math.isfinite(loss) and self._spec.training.max_bad_gradients > 0

    def _wait_for_change(self, *, until_directive: bool = False) -> None:
        """Waits for a directive not yet looked at or, if that is what is missing, for a batch."""
        seen, queue = self._done_serial, self._queue
        if until_directive or self._at_barrier() or not self._link.memory.shards.shards():
            self._stall_watch.stop()
        else:
            # Leased shards count as pending work: reading the data may be what hangs.
            self._stall_watch.restart()
        self._link.wait(
            lambda: (
                self._link.serial != seen
                or self._reporter.failed
                or (self._model is not None and self._model.failed)
                or (not until_directive and queue is not None and not self._at_barrier() and queue.ready())
            )
        )

    def _at_barrier(self) -> bool:
        directive = self._link.directive()
        return directive.barrier_requested > directive.barrier_passed

    # -- what directives ask for -----------------------------------------------------------------------------

    def _answer(self, directive: pb.Directive, serial: int) -> bool:
        """Does one thing that is asked for. False if there is nothing but training."""
        if directive.barrier_requested > max(self._barrier, directive.barrier_passed):
            self._reach_barrier(directive)
            return True
        for truncation in directive.truncations:
            self._truncate(truncation)
        if directive.task and directive.task != "export":
            self._start_callbacks(directive)
        self._callbacks.end_epochs(directive)
        if directive.evaluation and self._validation is not None and self._make_ready():
            self._evaluate(directive)
            # More may have come back from a worker that died; the next directive tells.
            self._done_serial = serial
            return True
        if directive.evaluation_to_finish and self._evaluator.finish(directive, self._trainer):
            return True
        if directive.task == "export":
            self._export()
        elif directive.task:
            # The end of an epoch, which waits for what the leader's callbacks say.
            self._finish_task(directive.task, "stop" if self._callbacks.stop_training else "")
        self._done_serial = serial
        return False

    def _start_callbacks(self, directive: pb.Directive) -> None:
        if not self._callbacks.is_started and directive.epochs_ended and self._make_ready():
            self._callbacks.start_for_ended(directive)

    def _start_generation(self, directive: pb.Directive) -> None:
        spec = self._spec
        if spec.nodes.num_ps and not directive.HasField("ps_map"):
            return
        self._stop_reading()
        if self._model is not None:
            self._model.close()
        self._generation = directive.generation
        self._reporter.start_generation(directive.generation)
        self._leases.start_generation()
        self._barrier = directive.barrier_passed
        generation = directive.generation
        if spec.nodes.num_ps:
            self._model = self._served_model(directive)
        else:
            self._model = LocalModel(
                self._trainer,
                restore_from=directive.restore_from,
                first_step=directive.first_step,
                max_bad_gradients=spec.training.max_bad_gradients,
            )
        self._shards = LeasedShards(self._link, "training", generation=generation)
        batches = self._trainer.batches(
            self._training,
            self._shards,
            mode=Mode.TRAINING,
            batch_size=spec.training.minibatch_size,
            max_bad_records=spec.data.max_bad_records,
        )
        self._queue = prefetch_batches(batches, self._link.nudge)

    def _served_model(self, directive: pb.Directive) -> Model:
        # Only a job with servers waits for this to be imported.
        from elasticdl.ps.client.parameter_client import ParameterClient
        from elasticdl.ps.replication.routes import latest_routes
        from elasticdl.worker.model.served_model import ServedModel

        training, generation = self._spec.training, directive.generation
        client = ParameterClient(
            routes=latest_routes(directive, self._link.directive),
            token=self._token,
            worker=self._link.node,
            generation=generation,
            stop=lambda: self._abandoned(generation),
            transfer=training.row_transfer,
            tolerant=training.max_bad_gradients > 0,
        )
        return ServedModel(
            self._trainer,
            client,
            pull_every=training.get_model_steps,
            restore_from=directive.restore_from,
            asynchronous=training.asynchronous,
            nudge=self._link.nudge,
            beginning=None if self._model is None else self._model.beginning,
        )

    def _abandoned(self, generation: int) -> bool:
        """Whether the result of that generation is not needed any more."""
        directive = self._link.directive()
        return directive.generation != generation or directive.finished

    def _reach_barrier(self, directive: pb.Directive) -> None:
        if self._model is not None:
            self._model.settle()
        self._reporter.flush()
        if self._served and directive.generation == self._generation:
            # Restored servers wait with their snapshot until a worker says what this job trains with; and while there
            # is a barrier, no worker comes to a batch.
            self._make_ready()
        self._barrier = directive.barrier_requested
        request = pb.ReachBarrierRequest(node=self._link.node, barrier=directive.barrier_requested)
        if directive.barrier_save_to and isinstance(self._model, LocalModel):
            try:
                self._make_ready()
                files = self._model.save(Path(directive.barrier_save_to))
                request.files.extend(pb.SavedFile(name=f.name, bytes=f.bytes, crc32=f.crc32) for f in files)
            except OSError as error:
                request.error = f"{directive.barrier_save_to}: {error.strerror or error}"
        self._link.call(self._link.stub.ReachBarrier, request)

    def _truncate(self, truncation: pb.Truncation) -> None:
        """Ends a lease early, if a part of it can go to others."""
        end = self._leases.end_after(truncation.lease_id, truncation.end)
        if end is not None:
            self._end_at(truncation.lease_id, end)

    def _end_at(self, lease_id: int, end: int) -> None:
        """Leaves what lies behind to others."""
        self._leases.end_at(lease_id, end)
        self._link.memory.shards.truncate(lease_id, end)
        request = pb.TruncateRequest(node=self._link.node, lease_id=lease_id, end=end)
        self._link.call(self._link.stub.Truncate, request)

    def _make_ready(self) -> bool:
        """Sees to it that the model has its parameters: a worker that has not trained yet needs a sample for that.

        Raises `UserError` if the feed gives none for any record: no worker would ever have one.
        """
        if self._model is None:
            return False
        if self._example is not None:
            self._model.prepare(self._example)
            return True
        start, count = 0, _FIRST_EXAMPLE_RECORDS
        is_readable = True
        while start < len(self._training):
            shard = Shard(lease_id=0, epoch=0, start=start, end=min(start + count, len(self._training)))
            batches = self._trainer.batches(
                self._training, [shard], mode=Mode.TRAINING, batch_size=2, max_bad_records=2
            )
            for batch in batches:
                if batch.size:
                    self._prepare(batch)
                    return True
                is_readable = is_readable and not batch.bad
            # Samples that cannot be read, or that the feed leaves out, are no example: others wait for one.
            if self._abandoned(self._generation):
                return False
            start, count = shard.end, min(2 * count, _MOST_EXAMPLE_RECORDS)
        if is_readable and len(self._training):
            raise UserError(
                f"The feed gives no sample for any of the {len(self._training):,} records of "
                f"{self._spec.data.training_data}.",
                hint="Yield a sample for each record that is to be trained.",
            )
        return False

    def _evaluate(self, directive: pb.Directive) -> None:
        assert self._model is not None
        assert self._validation is not None
        try:
            self._model.freeze(snapshot_name(directive.evaluation))
        except NotFound:
            # The others were quicker: the evaluation is over, and its frozen model gone.
            return
        callbacks = self._callbacks.runner(directive)
        callbacks.fire("on_test_begin", {})
        self._evaluator.work(
            directive,
            self._validation,
            generation=self._generation,
            callbacks=callbacks,
            between=self._between_evaluation_batches,
        )
        self._model.thaw()
        callbacks.fire("on_test_end", {})

    def _between_evaluation_batches(self) -> bool:
        """Keeps what cannot wait until the evaluation is over. False: stop evaluating."""
        directive = self._link.directive()
        if directive.finished or directive.drain or directive.generation != self._generation:
            return False
        if directive.barrier_requested > max(self._barrier, directive.barrier_passed):
            self._reach_barrier(directive)
        for truncation in directive.truncations:
            self._truncate(truncation)
        return True

    def _export(self) -> None:
        if not self._make_ready():
            return
        assert self._model is not None
        assert self._example is not None
        self._model.thaw()
        with self._model.whole():
            lines = export_model(self._spec, self._trainer, self._example)
        self._finish_task("export", "\n".join(lines))

    def _finish_task(self, task: str, result: str) -> None:
        request = pb.FinishTaskRequest(node=self._link.node, task=task, result=result)
        self._link.call(self._link.stub.FinishTask, request)

    # -- training --------------------------------------------------------------------------------------------

    def _prepare(self, batch: Batch) -> None:
        assert self._model is not None
        self._model.prepare(batch)
        if self._model.is_asynchronous and self._queue is not None:
            self._queue.prefetch_always()
        if self._example is None:
            self._example = batch
        if self._trainer.remarks and not self._has_remarked:
            self._has_remarked = True
            self._link.call(
                self._link.stub.Remark,
                pb.RemarkRequest(node=self._link.node, remarks=self._trainer.remarks),
            )

    def _train(self, batch: Batch, directive: pb.Directive) -> None:
        assert self._model is not None
        lease_id = self.lease_id = batch.shard.lease_id
        end = self._leases.end(batch)
        position, batches = self._leases.position(batch)
        if batch.atomic and position < end < batch.shard.end:
            # A part of it was promised to others before it was seen to have no order inside: no part of it can be done.
            end = position
            self._end_at(lease_id, end)
        if lease_id in self._reporter.lost or position >= end:
            if batch.last:
                self._model.settle()
                self._link.memory.shards.end([lease_id])
                self._leases.finish(lease_id)
            return
        # Where samples could not be read, batches do not lie where the master thinks: never report beyond the end.
        position = min(batch.position, end)
        started = time.perf_counter()

        def applied(loss: float | None) -> None:
            if loss is not None and self._is_skipped(loss):
                loss = None
            if batch.last or not batch.atomic:
                self._reporter.note(
                    lease_id=lease_id,
                    position=position,
                    batches=batches,
                    atomic=batch.atomic,
                    loss=loss,
                    seconds=time.perf_counter() - started,
                    last=batch.last,
                )

        if batch.bad:
            self._reporter.note_bad(batch.bad, "training")
            if self._served:
                # If this worker dies, its pushes tell of its batches, and of nothing between them.
                self._reporter.flush()
        if batch.size:
            self._prepare(batch)
            callbacks = self._callbacks.runner(directive)
            self._callbacks.begin_epoch(batch.shard.epoch, callbacks)
            callbacks.fire("on_train_batch_begin", batches, {})
            batches += 1
            loss = self._model.train(
                batch,
                position=position,
                batches=batches,
                applied=applied if self._model.is_asynchronous else None,
                upcoming=self._queue.upcoming() if self._queue is not None else None,
            )
            self._reporter.note_skipped(self._model.skipped_batches)
            callbacks.fire("on_train_batch_end", batches - 1, {"loss": loss})
            if not self._is_skipped(loss):
                self._loss_log.add(self._model.step, loss)
            self._record_learning_rate()
            if callbacks.stop_training:
                self._reporter.ask_to_stop()
            if not self._model.is_asynchronous:
                applied(loss)
        else:
            # The computed batches of the previous shard count first.
            self._model.settle()
            if self._example is None and not batch.bad:
                # A feed may leave records out, but not all of them: the epoch would count as trained.
                self._make_ready()
            applied(None)
        self._leases.advance(batch, position, batches)
        self._stall_watch.restart()
        self.lease_id = 0

    def _record_learning_rate(self) -> None:
        """Once a second: to read it costs some frameworks as much as a small batch."""
        assert self._model is not None
        now = time.monotonic()
        if now >= self._rate_due:
            self._rate_due = now + _RATE_SECONDS
            scalar("learning_rate", self._trainer.learning_rate(self._model.step))

    # -- the end ---------------------------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        if self._shards is not None:
            self._shards.close()
        if self._queue is not None:
            self._queue.close()
        self._shards = self._queue = None

    def _leave(self, directive: pb.Directive) -> None:
        self._stall_watch.stop()
        self._stop_reading()
        if self._model is not None:
            # The job may not need the last step any more.
            with contextlib.suppress(Abandoned):
                self._model.settle()
        self._reporter.flush()
        self._callbacks.end_epochs(directive)
        self._callbacks.finish()
