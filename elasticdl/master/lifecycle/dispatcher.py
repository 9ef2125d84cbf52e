"""The dispatcher leases shards to workers, takes their reports, and splits shards among idle workers.

What is done, leased and to do is in the ledger. Here is decided when something is leased, to which worker, and what
follows from reports for the job. Data sets of training programs are in `program_datasets.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from elasticdl.master.commands.shards import LeaseShards, ReportProgress, TruncateLease
from elasticdl.master.dataset_names import EVALUATION, TRAINING
from elasticdl.master.ledger.ledger import Lease, Ledger, LostLease
from elasticdl.master.ledger.step_limit import within_steps
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.epochs import Epochs
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.lifecycle.unreadable_samples import UnreadableSampleLimit
from elasticdl.master.settings import JobSettings


class Dispatcher:
    def __init__(
        self,
        *,
        settings: JobSettings,
        ledger: Ledger,
        roster: Roster,
        sizes: DatasetSizes,
        outcome: JobOutcome,
        epochs: Epochs,
        evaluations: Evaluations,
        unreadable: UnreadableSampleLimit,
        failed_workers: Collection[str],
        at_barrier: Callable[[], bool],
        recovering: Callable[[], bool],
    ) -> None:
        """`failed_workers`: those that have reported an error and have not exited yet."""
        self._settings = settings
        self._ledger = ledger
        self._roster = roster
        self._sizes = sizes
        self._outcome = outcome
        self._epochs = epochs
        self._evaluations = evaluations
        self._unreadable = unreadable
        self._failed_workers = failed_workers
        self._at_barrier = at_barrier
        self._recovering = recovering
        self._last_report: dict[str, int] = {}
        # Leases that idle workers wait for a part of: the owner, and where it should end. Not in the journal: a
        # proposal that is lost is made again.
        self._proposals: dict[int, tuple[str, int]] = {}

    # -- commands --------------------------------------------------------------------------------------------

    def lease(self, command: LeaseShards) -> list[Lease]:
        """Leases shards. Call `may_lease`, which is not journaled, before."""
        name = self._ledger_name(command.dataset)
        leases = self._ledger.lease(name, command.worker, command.count, command.request_id)
        if name == TRAINING and self._settings.max_step:
            return within_steps(self._ledger, leases, self._settings.max_step)
        return leases

    def report(self, command: ReportProgress) -> list[int]:
        ledger, worker = self._ledger, command.worker
        # Before the progress that passes them, which may end the epoch.
        self._unreadable.mark(command.bad)
        lost = []
        for lease_id, position, batches, atomic in command.progress:
            try:
                ledger.progress(lease_id, position, batches, worker, atomic=atomic)
            except LostLease:
                lost.append(lease_id)
        trains = TRAINING in self._sizes
        if command.report_id > self._last_report.get(worker, 0):
            self._last_report[worker] = command.report_id
            if trains:
                self._epochs.add_loss(ledger.epoch(TRAINING), command.loss_sum, command.loss_batches)
        if command.stop_training and trains:
            ledger.stop(TRAINING)
        return lost

    def truncate(self, command: TruncateLease) -> None:
        self._proposals.pop(command.lease_id, None)
        self._ledger.truncate(command.lease_id, command.worker, command.end)

    # -- splitting -------------------------------------------------------------------------------------------

    def propose_split(self, dataset: str, idle: str) -> bool:
        """Asks a busy worker to give up a part of its work for an idle one. Not a command: see `_proposals`."""
        if self._at_barrier() or self._recovering():
            return False
        name = self._ledger_name(dataset)
        if name not in self._ledger.datasets():
            return False
        held = {lease.lease_id: lease.worker for lease in self._ledger.held(name)}
        self._proposals = {k: v for k, v in self._proposals.items() if k in held}
        # A worker that has failed does not answer any more.
        failed = {lease_id for lease_id, worker in held.items() if worker in self._failed_workers}
        proposal = self._ledger.split(name, idle, exclude=failed | self._proposals.keys())
        if proposal is None:
            return False
        self._proposals[proposal.lease_id] = (proposal.worker, proposal.new_end)
        return True

    def proposals_to(self, worker: str) -> list[tuple[int, int]]:
        """The leases of this worker that it should end earlier, and where."""
        return [(lease, end) for lease, (owner, end) in sorted(self._proposals.items()) if owner == worker]

    @property
    def proposals(self) -> int:
        return len(self._proposals)

    def withdraw_proposals(self) -> None:
        self._proposals.clear()

    def forget_worker(self, worker: str) -> None:
        """A worker has ended."""
        self._last_report.pop(worker, None)
        self._proposals = {k: v for k, v in self._proposals.items() if v[0] != worker}

    # -- questions -------------------------------------------------------------------------------------------

    def may_lease(self, dataset: str, worker: str, request_id: int) -> bool:
        """Whether there is a shard for this worker now, or it repeats a request that has been granted."""
        name = self._ledger_name(dataset)
        if name not in self._ledger.datasets() or self._outcome.result or self._recovering():
            return False
        if name == TRAINING and (self._at_barrier() or self._outcome.stop_reason):
            return False
        node = self._roster.nodes.get(worker)
        if node is None or not node.joined or node.goes or worker in self._failed_workers:
            return False
        return self._ledger.leasable(name) or self._ledger.answered(name, worker, request_id)

    def finished(self, dataset: str) -> bool:
        """Whether no shard of it will be leased any more."""
        if self._outcome.result or self._outcome.stop_reason:
            return True
        if dataset == TRAINING:
            return self._epochs.training_over
        if dataset == EVALUATION:
            return self._evaluations.current is None
        return dataset in self._ledger.datasets() and self._ledger.finished(dataset)

    def _ledger_name(self, dataset: str) -> str:
        evaluation = self._evaluations.current
        return evaluation.dataset if dataset == EVALUATION and evaluation is not None else dataset

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {"last_report": self._last_report}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._last_report = dict(snapshot["last_report"])
        self._proposals.clear()
