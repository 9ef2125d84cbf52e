"""When a job is over whose workers run a program of the user's own, and which of its nodes have to end by themselves.

The chief and the workers train; the job is over when each of them has exited with 0. Parameter servers and evaluators
only serve: they are stopped then. A worker gets the end of its data only when no sample of it can come back to it, so
no sample is left behind without a worker.

A worker that is lost may have pushed more to its framework's parameter servers than it has reported, and those cannot
say. What it held is trained again, and the audit says that it may count twice.
"""

from __future__ import annotations

from elasticai_api.proto.elasticai_api_pb2 import TRAINING
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import TRAINERS, Node, Roster
from elasticdl.master.programs.program_datasets import ProgramDatasets
from elasticdl.platforms.platform import EndReason


class ProgramCompletion:
    def __init__(
        self, *, ledger: Ledger, roster: Roster, outcome: JobOutcome, datasets: ProgramDatasets
    ) -> None:
        self._ledger = ledger
        self._roster = roster
        self._outcome = outcome
        self._datasets = datasets

    def settle(self) -> None:
        if self._outcome.stop_reason:
            self._outcome.finish("stopped")
        elif all(self._roster.completed(role) for role in TRAINERS):
            for dataset in self._datasets.announced:
                if not self._ledger.finished(dataset):
                    # The program has had enough (a number of steps, an early end): its own decision.
                    self._ledger.stop(dataset)
            self._outcome.finish("succeeded")

    def node_ended(self, node: Node) -> None:
        """Applies the consequences of a node's end for the program."""
        if self._may_count_twice(node):
            for name, announcement in self._datasets.announced.items():
                if announcement.task_type == TRAINING:
                    self._ledger.doubt(name, node.name)
        self._ledger.forget_worker(node.name)
        lost = node.role == "ps" and node.reason is not EndReason.COMPLETED
        if lost and not self._roster.completed("worker"):
            # The chief has the checkpoint, and initialises the server again.
            self._roster.reopen("chief")

    def _may_count_twice(self, node: Node) -> bool:
        """A trainer that pushes to parameter servers has not ended by itself."""
        serves = self._roster.targets.get("ps", 0) > 0
        return serves and node.role in TRAINERS and node.reason is not EndReason.COMPLETED
