"""The evaluation of a job, from its beginning at a cut to its values: workers report shards, and one of them finishes.

What an evaluation consists of is in `evaluation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elasticdl.master.dataset_names import EVALUATION
from elasticdl.master.lifecycle.evaluation import Evaluation, JournaledStates

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState


class Evaluating:
    COMMANDS = ("report_evaluation", "claim_evaluation", "finish_evaluation")

    def __init__(self, state: JobState) -> None:
        self._state = state

    def begin(self, *, number: int, epoch: int) -> None:
        """Of the model frozen at the cut of that number; `epoch`: the one it is the end of, or -1."""
        state = self._state
        size = state.sizes.get(EVALUATION, 0)
        state.evaluation = Evaluation(number=number, step=state.ledger.steps, epoch=epoch)
        workers = len(state.roster.alive("worker"))
        state.ledger.add(state.plan.single_pass(state.evaluation.dataset, size, workers=workers))

    def report_evaluation(
        self,
        *,
        worker: str,
        evaluation: int,
        lease_id: int,
        states: JournaledStates,
        bad: list[dict[str, Any]],
    ) -> None:
        state = self._state
        if state.evaluation is None or state.evaluation.number != evaluation:
            return
        held = {lease.lease_id: lease for lease in state.ledger.held_by(worker)}
        if lease_id not in held:
            return
        state.work.mark_bad([{**item, "dataset": state.evaluation.dataset} for item in bad])
        state.ledger.progress(lease_id, held[lease_id].end, 0, worker)
        state.evaluation.add(states)

    def to_be_finished(self) -> bool:
        """All of its data is done, and nobody has been found to work out the values."""
        state = self._state
        return (
            state.evaluation is not None
            and not state.evaluation.finisher
            and state.ledger.finished(state.evaluation.dataset)
        )

    def claim_evaluation(self, *, worker: str, evaluation: int) -> bool:
        state = self._state
        current = state.evaluation
        if current is None or current.number != evaluation or not state.ledger.finished(current.dataset):
            return False
        if current.finisher not in ("", worker):
            return False
        current.finisher = worker
        return True

    def finish_evaluation(self, *, evaluation: int, metrics: dict[str, float]) -> bool:
        """True if these are the values of the evaluation under way, told for the first time."""
        state = self._state
        current = state.evaluation
        if current is None or current.number != evaluation:
            return False
        state.evaluation = None
        if state.plan.kind == "train":
            state.ledger.remove(current.dataset)
        # The same step again: the model was lost after it and trained up to it once more.
        state.results = [r for r in state.results if r["step"] != current.step]
        state.results.append({"step": current.step, "epoch": current.epoch, "metrics": metrics})
        return True
