"""When a barrier is due, when an epoch is over, and when the job is.

Called after every command, these rules look at the state and move it on as far as it goes by itself. The order at the
end of an epoch: a barrier; from its snapshot the checkpoint and the evaluation; then the leader's callbacks hear of the
end, and may ask for the training to end; then the next epoch opens, or the model is exported.

Programs with a loop of their own have rules of their own (`programs/completion.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle, CheckpointPhase
from elasticdl.master.checkpointing.model_generation import ModelGeneration
from elasticdl.master.commands.checkpoints import (
    FailCheckpoint,
    FinishCheckpoint,
    PassBarrier,
    RequestCheckpoint,
    StartFromCheckpoint,
)
from elasticdl.master.commands.job import FinishTask
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.dataset_names import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.epochs import Epochs
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.leader_task import EXPORT, MERGE, LeaderTask, ended_epoch
from elasticdl.master.lifecycle.roster import JobFailure
from elasticdl.master.settings import JobSettings


class TrainingSchedule:
    def __init__(
        self,
        *,
        settings: JobSettings,
        ledger: Ledger,
        sizes: DatasetSizes,
        outcome: JobOutcome,
        generation: ModelGeneration,
        cycle: CheckpointCycle,
        evaluations: Evaluations,
        dispatcher: Dispatcher,
        epochs: Epochs,
        task: LeaderTask,
        migration_first: Callable[[], bool],
    ) -> None:
        """`migration_first`: whether the next barrier waits for buckets that are being moved."""
        self._settings = settings
        self._ledger = ledger
        self._sizes = sizes
        self._outcome = outcome
        self._generation = generation
        self._cycle = cycle
        self._evaluations = evaluations
        self._dispatcher = dispatcher
        self._epochs = epochs
        self._task = task
        self._migration_first = migration_first

    # -- commands --------------------------------------------------------------------------------------------

    def start_from_checkpoint(self, command: StartFromCheckpoint) -> None:
        self._cycle.set_saved(command.checkpoint)
        self._generation.start_from(command.checkpoint)

    def announce(self, command: AnnounceDataset) -> None:
        dataset, size, ledger = command.dataset, command.size, self._ledger
        if not self._sizes.announce(dataset, size):
            return
        if dataset == TRAINING:
            ledger.add(self._settings.dataset(TRAINING, size))
            saved = self._cycle.saved
            if saved is not None and saved.ledger is not None:
                ledger.rollback(saved.ledger)
                epoch = ledger.epoch(TRAINING)
                self._cycle.start_at(epoch)
                self._epochs.start_at(epoch)
                self._evaluations.skip_due()
        elif dataset == PREDICTION:
            ledger.add(self._settings.single_pass(PREDICTION, size))
        elif self._settings.kind == "evaluate":
            self._evaluations.begin(number=1, epoch=-1)

    def request_checkpoint(self, command: RequestCheckpoint) -> None:
        """Does nothing where there is nothing to save, or everything is saved."""
        cycle, steps = self._cycle, self._ledger.steps
        if self._settings.kind != "train" or not self._settings.saves or TRAINING not in self._sizes:
            return
        is_saved = cycle.saved is not None and cycle.saved.step == steps
        if not is_saved and steps != self._generation.first_step and not self._epochs.training_over:
            cycle.request_checkpoint()

    def pass_barrier(self, command: PassBarrier) -> bool:
        """The snapshot has been taken. Returns False if this is not the barrier of now."""
        barrier = self._cycle.barrier
        if barrier is None or barrier.number != command.barrier:
            return False
        at_end = self._at_epoch_end()
        epoch = self._ledger.epoch(TRAINING)
        evaluate = barrier.evaluate
        if at_end:
            # It may have been requested inside of the epoch, for one of the two: the end of an epoch is owed both.
            saved = barrier.save or not self._saves_at_epoch_end()
            evaluated = barrier.evaluate or not self._settings.evaluates or self._evaluations.current is None
            if saved and evaluated:
                self._cycle.close_epoch(epoch)
            evaluate = saved and evaluated and self._settings.evaluates and not self._outcome.stop_reason
        self._cycle.pass_barrier()
        if evaluate:
            self._evaluations.skip_due()
            self._evaluations.begin(number=barrier.number, epoch=epoch if at_end else -1)
        return True

    def fail_checkpoint(self, command: FailCheckpoint) -> None:
        """A full disk, most likely."""
        self._outcome.fail(JobFailure(message=f"A checkpoint could not be written: {command.message}"), "")

    def finish_checkpoint(self, command: FinishCheckpoint) -> None:
        pending = self._cycle.pending
        if pending is None or pending.barrier != command.barrier:
            return
        if command.error:
            self.fail_checkpoint(FailCheckpoint(barrier=command.barrier, message=command.error))
            return
        self._cycle.finish_writing(command.path, for_stop=bool(self._outcome.stop_reason))

    def finish_task(self, command: FinishTask) -> None:
        if self._task.name != command.task:
            return
        self._task.clear()
        epoch = ended_epoch(command.task)
        if command.error:
            self._outcome.fail(JobFailure(message=command.error), "")
        elif epoch is not None:
            self._epochs.callbacks_done(epoch)
            if command.result == "stop":
                self._ledger.stop(TRAINING)
        else:
            self._task.keep_result(command.result)
            self._outcome.finish("succeeded")

    # -- what follows from the state -------------------------------------------------------------------------

    def settle(self) -> None:
        kind = self._settings.kind
        if kind == "train":
            self._settle_training()
        elif self._outcome.stop_reason:
            self._outcome.finish("stopped")
        elif kind == "evaluate":
            if self._evaluations.results:
                self._outcome.finish("succeeded")
        elif PREDICTION in self._sizes and self._ledger.finished(PREDICTION) and not self._task.name:
            if self._settings.has_output:
                self._task.start(MERGE)
            else:
                self._outcome.finish("succeeded")

    def _settle_training(self) -> None:
        trains = TRAINING in self._sizes
        if self._outcome.stop_reason and (
            self._cycle.is_saved_for_stop
            or not self._settings.saves
            or not trains
            or self._ledger.steps == self._generation.first_step
        ):
            self._outcome.finish("stopped")
            return
        if not trains or self._epochs.training_over:
            return
        if self._settings.evaluates and EVALUATION not in self._sizes:
            return
        if self._settings.max_step and self._ledger.steps >= self._settings.max_step:
            self._ledger.stop(TRAINING)
        if self._cycle.phase is CheckpointPhase.TRAINING:
            self._request_barrier()
        if self._cycle.barrier is None and self._at_epoch_end() and self._evaluations.current is None:
            self._close_epoch()

    def _request_barrier(self) -> None:
        evaluate = save = flush = False
        if self._outcome.stop_reason:
            save = self._settings.saves and not self._cycle.is_saved_for_stop
        elif self._at_epoch_end():
            epoch = self._ledger.epoch(TRAINING)
            if self._cycle.closed_epoch < epoch and self._evaluations.current is None:
                evaluate = self._settings.evaluates
                save = self._saves_at_epoch_end()
                # The exported model, and the one evaluated last, have all gradients. A checkpoint has them anyway.
                flush = (
                    self._settings.gradients_wait
                    and self._ledger.finished(TRAINING)
                    and (evaluate or self._settings.has_output)
                )
                if not evaluate and not save and not flush:
                    self._cycle.close_epoch(epoch)
        else:
            evaluate = self._evaluations.is_due
            save = self._cycle.is_due or self._cycle.is_requested
        # After a restore no bucket moves before a worker has come to a batch, and no worker may before a barrier.
        trained = self._ledger.steps > self._generation.first_step
        if trained and not self._outcome.stop_reason and self._migration_first():
            return
        if evaluate or save or flush:
            self._cycle.request_barrier(evaluate=evaluate, save=save, flush=flush)
            self._dispatcher.withdraw_proposals()

    def _close_epoch(self) -> None:
        epoch = self._ledger.epoch(TRAINING)
        if self._cycle.closed_epoch < epoch or self._cycle.pending is not None:
            return
        self._epochs.record_end(epoch, self._evaluations.of_epoch(epoch) or {})
        if self._epochs.processed_epoch < epoch:
            # The leader's callbacks may end the training, before the next epoch begins.
            self._task.start_epoch_end(epoch)
            return
        if not self._ledger.finished(TRAINING):
            self._ledger.open_next_epoch(TRAINING)
            return
        self._epochs.end_training()
        if self._settings.has_output:
            self._task.start(EXPORT)
        else:
            self._outcome.finish("succeeded")

    def _at_epoch_end(self) -> bool:
        return self._ledger.epoch_done(TRAINING) or self._ledger.finished(TRAINING)

    def _saves_at_epoch_end(self) -> bool:
        """Without --checkpoint_steps a checkpoint is written at the end of each epoch."""
        settings = self._settings
        return settings.saves and (not settings.checkpoint_steps or self._ledger.finished(TRAINING))
