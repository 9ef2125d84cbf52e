"""Cuts: everybody comes to a halt, the model is frozen, and a checkpoint or an evaluation of it begins.

A cut is a moment at which no batch is half done: every worker that holds a shard has reported all it pushed and stands
still. When one is due, the course of the job says (`schedule.py`); what is done about it, is in `checkpointer.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.master.checkpointing.barrier_records import SavedModel, Saving
from elasticdl.master.commands.checkpoints import FailCheckpoint, FinishCheckpoint, PassBarrier, ReachBarrier
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.lifecycle.roster import JobFailure
from elasticdl.master.lifecycle.schedule import at_epoch_end, mark, saved_at_epoch_end

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState


class Standstill:
    def __init__(self, state: JobState) -> None:
        self._state = state

    def reach(self, command: ReachBarrier) -> None:
        state, worker = self._state, command.worker
        if state.cut is not None and state.cut.number == command.barrier and worker not in state.cut.reached:
            state.cut.reached.append(worker)
            state.cut.files += command.files

    def complete(self) -> bool:
        """Everybody who might be in the middle of a batch stands still."""
        state = self._state
        if state.cut is None:
            return False
        workers = [n for n in state.roster.alive("worker") if n.incarnation]
        if state.plan.allreduce or (state.plan.worker_owns_state and state.cut.save):
            # Where all have the same model, the first of them stands still when all do.
            return any(n.name in state.cut.reached for n in workers)
        return all(
            n.name in state.cut.reached
            or not any(lease.dataset == TRAINING for lease in state.ledger.held_by(n.name))
            for n in workers
        )

    def release(self, command: PassBarrier) -> None:
        """The model has been frozen: training may go on."""
        state, cut = self._state, command.barrier
        if state.cut is None or state.cut.number != cut:
            return
        taken, state.cut = state.cut, None
        state.cuts_passed = cut
        state.placing.copied()
        at_end = at_epoch_end(state)
        epoch = state.ledger.epoch(TRAINING)
        evaluate = taken.evaluate
        if at_end:
            # It may have been asked for inside of the epoch, for one of the two: the end of an epoch is owed both.
            saved = taken.save or not saved_at_epoch_end(state)
            if saved and (taken.evaluate or not state.plan.evaluates or state.evaluation is None):
                state.cut_epoch = epoch
                evaluate = state.plan.evaluates and not state.stopping
            else:
                evaluate = False
        if taken.save:
            state.saving = Saving(
                cut=cut,
                step=state.ledger.steps,
                epoch=epoch,
                ledger=state.ledger.snapshot(),
                files=taken.files,
            )
            state.saved_mark = mark(state, state.plan.checkpoint_steps)
        if evaluate:
            state.evaluated_mark = mark(state, state.plan.evaluation_steps)
            state.evaluating.begin(number=cut, epoch=epoch if at_end else -1)

    def fail(self, command: FailCheckpoint) -> None:
        """The model could not be written: a full disk, most likely."""
        state = self._state
        state.fail_job(JobFailure(message=f"A checkpoint could not be written: {command.message}"), "")

    def finish(self, command: FinishCheckpoint) -> None:
        state = self._state
        if state.saving is None or state.saving.cut != command.barrier:
            return
        if command.error:
            self.fail(FailCheckpoint(barrier=command.barrier, message=command.error))
            return
        state.saved = SavedModel(path=command.path, step=state.saving.step, ledger=state.saving.ledger)
        state.saving = None
        state.stop_saved = bool(state.stopping)
