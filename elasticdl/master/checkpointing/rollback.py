"""The rollback to the last checkpoint, when a process dies that had the only copy of a part of the model.

The ledger goes back to the checkpoint, a new generation begins, and the audit counts what is trained again. What
belongs to the generation before is void: the barrier, the snapshot, evaluations, split proposals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle
from elasticdl.master.checkpointing.model_generation import ModelGeneration
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.epochs import Epochs
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.leader_task import LeaderTask
from elasticdl.master.settings import JobSettings


class GenerationScoped(Protocol):
    """State that is void when the model is lost."""

    def lose_model(self) -> None: ...


class Rollback:
    def __init__(
        self,
        *,
        settings: JobSettings,
        ledger: Ledger,
        sizes: DatasetSizes,
        generation: ModelGeneration,
        cycle: CheckpointCycle,
        evaluations: Evaluations,
        dispatcher: Dispatcher,
        epochs: Epochs,
        task: LeaderTask,
        scoped: Sequence[GenerationScoped],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._sizes = sizes
        self._generation = generation
        self._cycle = cycle
        self._evaluations = evaluations
        self._dispatcher = dispatcher
        self._epochs = epochs
        self._task = task
        self._scoped = scoped

    def run(self, *, above: int = 0) -> None:
        """Begins a generation above this number and all before."""
        cycle, ledger = self._cycle, self._ledger
        cycle.cancel()
        self._evaluations.cancel()
        self._dispatcher.withdraw_proposals()
        saved = cycle.saved
        trains = TRAINING in self._sizes
        if trains:
            ledger.rollback(saved.ledger if saved else None)
        for part in self._scoped:
            part.lose_model()
        self._evaluations.remove_leftovers()
        self._generation.begin_next(saved, above=above)
        self._evaluations.skip_due()
        cycle.skip_due()
        epoch = ledger.epoch(TRAINING) if trains else 0
        # A checkpoint of the end of an epoch is behind that end, unless its evaluation is lost.
        evaluated = not self._settings.evaluates or self._evaluations.of_epoch(epoch) is not None
        at_end = trains and (ledger.epoch_done(TRAINING) or ledger.finished(TRAINING))
        last_ended = epoch if at_end and evaluated else epoch - 1
        cycle.reopen_epochs_after(last_ended)
        self._epochs.roll_back(epoch=epoch, last_ended=last_ended)
        self._task.clear()
