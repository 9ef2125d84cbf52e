"""The steps of a training by all-reduce in the job's state: the progress, and the members that have the model.

A step trains the next micro-batches in the order of the epoch, on any set of members, so there are no leases: a report
is a position in that order. Members report only steps that every member of their round has made, so each survivor has
at least the progress of the ledger. Only when the last member with the state of the training is gone, the state is
lost, and the job rolls back to its checkpoint, or to the beginning where there is none.

A user's program saves its model itself, in the oldest worker that has the state. When that worker has exited with 0 the
training is concluded: a worker without the state has nothing left to do, and must not start from its initial weights.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from elasticdl.master.checkpointing.model_generation import ModelGeneration
from elasticdl.master.commands.programs import AdvanceSteps, HoldTrainingState, ReleaseTrainingState
from elasticdl.master.commands.shards import ReportProgress
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.roster import Node, Roster
from elasticdl.platforms.platform import EndReason


class TrainingSteps:
    def __init__(
        self,
        *,
        ledger: Ledger,
        roster: Roster,
        dispatcher: Dispatcher,
        generation: ModelGeneration,
        announced: Container[str],
    ) -> None:
        """`announced`: the data sets of training programs."""
        self._ledger = ledger
        self._roster = roster
        self._dispatcher = dispatcher
        self._generation = generation
        self._announced = announced
        # Workers that have the state of the training, the oldest first.
        self.holders: list[str] = []
        self.dataset = ""
        # The oldest holder, which saves the model of a program, has exited with 0.
        self._saved = False

    # -- commands --------------------------------------------------------------------------------------------

    def hold(self, command: HoldTrainingState) -> None:
        node = self._roster.nodes.get(command.worker)
        if node is not None and node.alive and command.worker not in self.holders:
            older = [self.holders.index(worker) for worker in command.older if worker in self.holders]
            self.holders.insert(max(older, default=-1) + 1, command.worker)
            self.dataset = command.dataset

    def release(self, command: ReleaseTrainingState) -> None:
        """A worker leaves. The oldest counts until it has ended, as it may be saving the model."""
        if command.worker in self.holders[1:]:
            self.holders.remove(command.worker)

    def advance(self, command: AdvanceSteps) -> int:
        """Counts the loss and the unreadable samples, then the steps."""
        self._dispatcher.report(
            ReportProgress(
                worker=command.worker,
                report_id=command.report_id,
                progress=[],
                bad=command.bad,
                loss_sum=command.loss_sum,
                loss_batches=command.loss_steps,
                stop_training=command.stop_training,
            )
        )
        return self._ledger.pass_shards(
            command.dataset, epoch=command.epoch, place=command.at, steps=command.step
        )

    # -- what others ask and tell ----------------------------------------------------------------------------

    @property
    def is_fresh(self) -> bool:
        """No worker has the state of the training, and none had it: the first of a round starts with its own."""
        return not self.holders and not self.is_concluded

    @property
    def is_saved(self) -> bool:
        """The worker that saves the model of a program has done so."""
        return self._saved

    @property
    def is_concluded(self) -> bool:
        """The program has trained what it trains. Workers that never received the state have nothing left to do."""
        return self.dataset in self._announced and (self._saved or self._ledger.finished(self.dataset))

    def forget(self, node: Node) -> bool:
        """A worker has ended. True if the state of the training was lost with it."""
        if node.name not in self.holders:
            return False
        oldest = self.holders[0] == node.name
        self.holders.remove(node.name)
        if oldest and self.dataset in self._announced:
            self._saved = self._saved or (node.reason is EndReason.COMPLETED and not node.goes)
        return not self.holders and not self._saved and self._ledger.steps > self._generation.first_step

    def lose_model(self) -> None:
        """The training begins again. Model definitions go to a checkpoint; programs have none of ours."""
        self.holders.clear()
        self._saved = False
        if self.dataset in self._announced:
            self._ledger.reset_dataset(self.dataset)

    def leader(self) -> Node | None:
        """Returns the oldest member with the state of the training, unless it is draining."""
        nodes = (self._roster.nodes.get(worker) for worker in self.holders)
        return next((node for node in nodes if node is not None and node.alive and not node.draining), None)

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {"holders": self.holders, "dataset": self.dataset, "saved": self._saved}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.holders = list(snapshot["holders"])
        self.dataset = snapshot["dataset"]
        self._saved = snapshot["saved"]
