"""The work of a job: its data is handed out in shards, reported, and split among idle workers at the end.

What is done, held and to do the ledger knows. Here is when something is handed out, to whom, and what follows for the
job from what workers report. What else programs of the user's own say of their data is in `program_datasets.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elasticdl.master.dataset_names import EVALUATION, PREDICTION, TRAINING
from elasticdl.master.ledger.ledger import Lease, LedgerError, LostLease
from elasticdl.master.ledger.step_limit import within_steps
from elasticdl.master.lifecycle.roster import JobFailure
from elasticdl.master.lifecycle.schedule import mark

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState


class Work:
    COMMANDS = ("announce", "lease", "report", "truncate")

    def __init__(self, state: JobState) -> None:
        self._state = state

    # -- commands ------------------------------------------------------------------------------------------

    def announce(self, *, dataset: str, size: int) -> None:
        state = self._state
        known = state.sizes.get(dataset)
        if known is not None and known != size:
            raise LedgerError(
                f"The {dataset} data has {size} samples for one worker and {known} for another. "
                "All workers must see the same files."
            )
        if known is not None:
            return
        state.sizes[dataset] = size
        if dataset == TRAINING:
            state.ledger.add(state.plan.dataset(TRAINING, size))
            if state.saved is not None and state.saved.ledger is not None:
                state.ledger.rollback(state.saved.ledger)
                state.cut_epoch = state.told_epoch = state.ledger.epoch(TRAINING) - 1
                state.evaluated_mark = mark(state, state.plan.evaluation_steps)
                state.saved_mark = mark(state, state.plan.checkpoint_steps)
        elif dataset == PREDICTION:
            state.ledger.add(state.plan.single_pass(PREDICTION, size))
        elif state.plan.kind == "evaluate":
            state.evaluating.begin(number=1, epoch=-1)

    def lease(self, *, dataset: str, worker: str, count: int, request_id: int) -> list[Lease]:
        """Only after `may_lease`, which is not journaled."""
        state = self._state
        name = self._ledger_name(dataset)
        leases = state.ledger.lease(name, worker, count, request_id)
        if name == TRAINING and state.plan.max_step:
            return within_steps(state.ledger, leases, state.plan.max_step)
        return leases

    def report(
        self,
        *,
        worker: str,
        report_id: int,
        progress: list[tuple[int, int, int, bool]],
        bad: list[dict[str, Any]],
        loss_sum: float,
        loss_batches: int,
        stop_training: bool,
    ) -> list[int]:
        """Returns the leases that are not that worker's any more."""
        state = self._state
        # Before the progress that passes them, which may end the epoch.
        self.mark_bad(bad)
        lost = []
        for lease_id, position, batches, atomic in progress:
            try:
                state.ledger.progress(lease_id, position, batches, worker, atomic=atomic)
            except LostLease:
                lost.append(lease_id)
        if report_id > state.last_report.get(worker, 0):
            state.last_report[worker] = report_id
            if TRAINING in state.sizes:
                epoch = state.ledger.epoch(TRAINING)
                total, count = state.epoch_loss.get(epoch, (0.0, 0))
                state.epoch_loss = {epoch: (total + loss_sum, count + loss_batches)}
        if stop_training and TRAINING in state.sizes:
            state.ledger.stop(TRAINING)
        return lost

    def truncate(self, *, worker: str, lease_id: int, end: int) -> None:
        state = self._state
        state.truncations.pop(lease_id, None)
        state.ledger.truncate(lease_id, worker, end)

    # -- what happens --------------------------------------------------------------------------------------

    def mark_bad(self, bad: list[dict[str, Any]]) -> None:
        """Samples that cannot be read; too many of them fail the job."""
        state = self._state
        for item in bad:
            state.ledger.mark_bad(**item)
        skipped = sum(state.ledger.skipped(name) for name in state.ledger.datasets())
        if bad and skipped > state.plan.max_bad_records:
            where = "; ".join(f"{item['where']}: {item['reason']}" for item in bad[:3])
            state.fail_job(
                JobFailure(
                    message=f"{skipped} samples cannot be read, --max_bad_records allows "
                    f"{state.plan.max_bad_records}. The newest: {where}"
                ),
                "",
            )

    def forget_proposals(self, worker: str) -> None:
        """Those that it has not answered, and will not any more."""
        state = self._state
        state.truncations = {k: v for k, v in state.truncations.items() if v[0] != worker}

    def propose_split(self, dataset: str, idle: str) -> bool:
        """Asks a busy worker to give up a part of its work for an idle one. Not a command: see
        `truncations`.
        """
        state = self._state
        if state.cut is not None or state.reclaim.is_collecting:
            return False
        name = self._ledger_name(dataset)
        if name not in state.ledger.datasets():
            return False
        held = {lease.lease_id: lease.worker for lease in state.ledger.held(name)}
        state.truncations = {k: v for k, v in state.truncations.items() if k in held}
        # Who has failed does not answer any more.
        failed = {lease_id for lease_id, worker in held.items() if worker in state.failed}
        proposal = state.ledger.split(name, idle, exclude=failed | state.truncations.keys())
        if proposal is None:
            return False
        state.truncations[proposal.lease_id] = (proposal.worker, proposal.new_end)
        return True

    # -- questions -----------------------------------------------------------------------------------------

    def may_lease(self, dataset: str, worker: str, request_id: int) -> bool:
        """There is something to hand out to this worker now, or it asks again for what it was given."""
        state = self._state
        name = self._ledger_name(dataset)
        if name not in state.ledger.datasets() or state.outcome or state.reclaim.is_collecting:
            return False
        if name == TRAINING and (state.cut is not None or state.stopping):
            return False
        node = state.roster.nodes.get(worker)
        if node is None or not node.joined or node.goes or worker in state.failed:
            return False
        return state.ledger.leasable(name) or state.ledger.answered(name, worker, request_id)

    def finished(self, dataset: str) -> bool:
        """No shard of it will be handed out any more."""
        state = self._state
        if state.outcome or state.stopping:
            return True
        if dataset == TRAINING:
            return state.training_over
        if dataset == EVALUATION:
            return state.evaluation is None
        return dataset in state.ledger.datasets() and state.ledger.finished(dataset)

    def _ledger_name(self, dataset: str) -> str:
        state = self._state
        return state.evaluation.dataset if dataset == EVALUATION and state.evaluation else dataset
