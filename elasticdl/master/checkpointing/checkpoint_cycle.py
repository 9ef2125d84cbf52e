"""The checkpoint cycle: workers meet at a barrier, a snapshot of the model is taken, a checkpoint is written from it.

A barrier is a moment at which no batch is half done: every worker that holds a shard has reported all it pushed, and
waits. Evaluations and checkpoints start from the snapshot taken there, so they mean one model and one ledger. Workers
wait for a batch at most; writing and evaluating the snapshot happen while training goes on.

`CheckpointCycle` is the only owner of this state. When a barrier is due is decided by `training_schedule.py`; the calls
to the parameter servers and the files are in `checkpointer.py`.
"""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any

from elasticdl.master.commands.checkpoints import ReachBarrier, SavedCheckpoint
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.settings import JobSettings
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile


class CheckpointPhase(enum.Enum):
    TRAINING = "training"
    # Workers finish their batch and wait, then the snapshot is taken.
    BARRIER = "barrier"
    # Training goes on, and the snapshot becomes a checkpoint.
    WRITING = "writing"


# A rollback, or the recovery from a lost journal, leads from every phase back to TRAINING.
_TRANSITIONS = {
    CheckpointPhase.TRAINING: frozenset({CheckpointPhase.BARRIER}),
    CheckpointPhase.BARRIER: frozenset({CheckpointPhase.WRITING, CheckpointPhase.TRAINING}),
    CheckpointPhase.WRITING: frozenset({CheckpointPhase.TRAINING}),
}


@dataclass(kw_only=True)
class Barrier:
    """The state of a barrier that workers have not all reached. Numbers of barriers only grow."""

    number: int
    evaluate: bool
    save: bool
    # The last one: gradients that wait on the servers for others are applied.
    flush: bool = False
    reached: list[str] = field(default_factory=list)
    # The files of the worker that owns the model: entries of the checkpoint's manifest.
    files: list[SavedFile] = field(default_factory=list)


@dataclass(kw_only=True)
class PendingCheckpoint:
    """A checkpoint that is being written from the snapshot of a barrier."""

    barrier: int
    step: int
    epoch: int
    ledger: dict[str, Any]
    files: list[SavedFile] = field(default_factory=list)


class CheckpointCycle:
    def __init__(self, *, settings: JobSettings, ledger: Ledger, roster: Roster) -> None:
        self._settings = settings
        self._ledger = ledger
        self._roster = roster
        self._phase = CheckpointPhase.TRAINING
        self._barrier: Barrier | None = None
        self._pending: PendingCheckpoint | None = None
        self._saved: SavedCheckpoint | None = None
        # The number of the last barrier that all have passed.
        self._passed = 0
        # The epoch whose end has had its barrier (evaluation, checkpoint).
        self._closed_epoch = -1
        # How many times --checkpoint_steps have been reached and saved.
        self._mark = 0
        self._saved_for_stop = False
        # A checkpoint of a later barrier than this has been asked for.
        self._requested_after: int | None = None

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def phase(self) -> CheckpointPhase:
        return self._phase

    @property
    def barrier(self) -> Barrier | None:
        """The barrier that workers come to."""
        return self._barrier

    @property
    def pending(self) -> PendingCheckpoint | None:
        """The checkpoint that is being written."""
        return self._pending

    @property
    def saved(self) -> SavedCheckpoint | None:
        return self._saved

    @property
    def passed(self) -> int:
        return self._passed

    @property
    def closed_epoch(self) -> int:
        return self._closed_epoch

    @property
    def is_saved_for_stop(self) -> bool:
        """A checkpoint has been written since the job was asked to stop."""
        return self._saved_for_stop

    @property
    def is_requested(self) -> bool:
        """A checkpoint has been asked for and is not written yet."""
        return self._requested_after is not None

    @property
    def is_due(self) -> bool:
        """--checkpoint_steps have been reached once more."""
        return self._reached_marks() > self._mark

    @property
    def is_complete(self) -> bool:
        """Every worker that might be in the middle of a batch waits at the barrier."""
        barrier = self._barrier
        if barrier is None:
            return False
        workers = [node for node in self._roster.alive("worker") if node.incarnation]
        if self._settings.allreduce or (self._settings.worker_owns_state and barrier.save):
            # Where all have the same model, the first of them waits when all do.
            return any(node.name in barrier.reached for node in workers)
        return all(
            node.name in barrier.reached
            or not any(lease.dataset == TRAINING for lease in self._ledger.held_by(node.name))
            for node in workers
        )

    # -- the cycle -------------------------------------------------------------------------------------------

    def request_checkpoint(self) -> None:
        """Asks for a checkpoint of all that has been trained until now, beside those that are due."""
        self._requested_after = self._passed

    def request_barrier(self, *, evaluate: bool, save: bool, flush: bool = False) -> None:
        self._enter(CheckpointPhase.BARRIER)
        self._barrier = Barrier(number=self._passed + 1, evaluate=evaluate, save=save, flush=flush)

    def reach(self, command: ReachBarrier) -> None:
        barrier, worker = self._barrier, command.worker
        if barrier is not None and barrier.number == command.barrier and worker not in barrier.reached:
            barrier.reached.append(worker)
            barrier.files += command.files

    def pass_barrier(self) -> None:
        """The snapshot has been taken: training goes on, and the checkpoint is written if it was asked for."""
        barrier = self._barrier
        assert barrier is not None
        self._barrier = None
        self._passed = barrier.number
        if not barrier.save:
            self._enter(CheckpointPhase.TRAINING)
            return
        self._enter(CheckpointPhase.WRITING)
        self._pending = PendingCheckpoint(
            barrier=barrier.number,
            step=self._ledger.steps,
            epoch=self._ledger.epoch(TRAINING),
            ledger=self._ledger.snapshot(),
            files=barrier.files,
        )
        self._mark = self._reached_marks()

    def finish_writing(self, path: str, *, for_stop: bool) -> None:
        pending = self._pending
        assert pending is not None
        self._enter(CheckpointPhase.TRAINING)
        self._pending = None
        self._saved = SavedCheckpoint(path=path, step=pending.step, ledger=pending.ledger)
        self._saved_for_stop = for_stop
        if self._requested_after is not None and pending.barrier > self._requested_after:
            self._requested_after = None

    def close_epoch(self, epoch: int) -> None:
        """The end of this epoch has had its barrier, or needs none."""
        self._closed_epoch = epoch

    def forget_worker(self, worker: str) -> None:
        """A worker has ended, perhaps at the barrier."""
        if self._barrier is not None and worker in self._barrier.reached:
            self._barrier.reached.remove(worker)
            if self._settings.allreduce:
                # Another one has the same model and writes it.
                self._barrier.files.clear()

    # -- starts, rollbacks and recovery ----------------------------------------------------------------------

    def set_saved(self, saved: SavedCheckpoint | None) -> None:
        """The checkpoint that the job starts from, or that was found on disk after the journal was lost."""
        self._saved = saved

    def forget_stop(self) -> None:
        """The job was resumed: its next stop needs a checkpoint of its own."""
        self._saved_for_stop = False

    def start_at(self, epoch: int) -> None:
        """The ledger continues in this epoch of a checkpoint."""
        self._closed_epoch = epoch - 1
        self.skip_due()

    def skip_due(self) -> None:
        """Checkpoints are due again only when --checkpoint_steps more have been done."""
        self._mark = self._reached_marks()

    def cancel(self) -> None:
        """The model is lost, and with it the snapshot. Workers may have reached the barrier: its number is used up."""
        if self._barrier is not None:
            self._passed = self._barrier.number
        self._barrier = self._pending = None
        self._phase = CheckpointPhase.TRAINING

    def reopen_epochs_after(self, epoch: int) -> None:
        """Later epochs are trained, and closed, once more."""
        self._closed_epoch = min(self._closed_epoch, epoch)

    def restart(self, *, skipped_numbers: int, reopened_epoch: int | None) -> None:
        """Barriers and checkpoints under way may have finished after an old snapshot of the state: they are repeated,
        with numbers that have not been used. `reopened_epoch`: its end is due again.
        """
        if self._pending is not None and self._settings.checkpoint_steps:
            self._mark -= 1
        self.cancel()
        self._passed += skipped_numbers
        if reopened_epoch is not None and self._closed_epoch == reopened_epoch:
            self._closed_epoch -= 1

    def skip_numbers(self, up_to: int) -> None:
        self._passed = max(self._passed, up_to)

    def learn_closed_epoch(self, epoch: int) -> None:
        """Workers remember the end of an epoch that a recovering master does not know."""
        self._closed_epoch = max(self._closed_epoch, epoch)

    # -- inside ----------------------------------------------------------------------------------------------

    def _enter(self, phase: CheckpointPhase) -> None:
        if phase not in _TRANSITIONS[self._phase]:
            raise AssertionError(f"The checkpoint cycle cannot go from {self._phase.value} to {phase.value}.")
        self._phase = phase

    def _reached_marks(self) -> int:
        every = self._settings.checkpoint_steps
        return self._ledger.steps // every if every else 0

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "checkpoint_phase": self._phase.value,
            "barrier": asdict(self._barrier) if self._barrier else None,
            "barriers_passed": self._passed,
            "saving": asdict(self._pending) if self._pending else None,
            "saved": asdict(self._saved) if self._saved else None,
            "closed_epoch": self._closed_epoch,
            "checkpoint_mark": self._mark,
            "saved_for_stop": self._saved_for_stop,
            "checkpoint_requested_after": self._requested_after,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        barrier, pending, saved = snapshot["barrier"], snapshot["saving"], snapshot["saved"]
        self._phase = CheckpointPhase(snapshot["checkpoint_phase"])
        self._barrier = Barrier(**_with_files(barrier)) if barrier else None
        self._passed = snapshot["barriers_passed"]
        self._pending = PendingCheckpoint(**_with_files(pending)) if pending else None
        self._saved = SavedCheckpoint(**saved) if saved else None
        self._closed_epoch = snapshot["closed_epoch"]
        self._mark = snapshot["checkpoint_mark"]
        self._saved_for_stop = snapshot["saved_for_stop"]
        # Journals of older versions do not have it.
        self._requested_after = snapshot.get("checkpoint_requested_after")


def _with_files(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "files": [SavedFile(**file) for file in record["files"]]}
