"""The evaluation of a job, from its beginning at a cut to its values: workers report shards, and one of them finishes.

What an evaluation consists of is in `evaluation.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from elasticdl.master.commands.evaluations import ClaimEvaluation, FinishEvaluation, ReportEvaluation
from elasticdl.master.dataset_names import EVALUATION
from elasticdl.master.lifecycle.evaluation import Evaluation

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState


class Evaluating:
    def __init__(self, state: JobState) -> None:
        self._state = state

    def begin(self, *, number: int, epoch: int) -> None:
        """Of the model frozen at the cut of that number; `epoch`: the one it is the end of, or -1."""
        state = self._state
        size = state.sizes.get(EVALUATION, 0)
        state.evaluation = Evaluation(number=number, step=state.ledger.steps, epoch=epoch)
        workers = len(state.roster.alive("worker"))
        state.ledger.add(state.plan.single_pass(state.evaluation.dataset, size, workers=workers))

    def report(self, command: ReportEvaluation) -> None:
        state, worker, lease_id = self._state, command.worker, command.lease_id
        if state.evaluation is None or state.evaluation.number != command.evaluation:
            return
        held = {lease.lease_id: lease for lease in state.ledger.held_by(worker)}
        if lease_id not in held:
            return
        state.work.mark_bad([replace(item, dataset=state.evaluation.dataset) for item in command.bad])
        state.ledger.progress(lease_id, held[lease_id].end, 0, worker)
        state.evaluation.add(command.states)

    def to_be_finished(self) -> bool:
        """All of its data is done, and nobody has been found to work out the values."""
        state = self._state
        return (
            state.evaluation is not None
            and not state.evaluation.finisher
            and state.ledger.finished(state.evaluation.dataset)
        )

    def claim(self, command: ClaimEvaluation) -> bool:
        state = self._state
        current = state.evaluation
        if (
            current is None
            or current.number != command.evaluation
            or not state.ledger.finished(current.dataset)
        ):
            return False
        if current.finisher not in ("", command.worker):
            return False
        current.finisher = command.worker
        return True

    def finish(self, command: FinishEvaluation) -> bool:
        state = self._state
        current = state.evaluation
        if current is None or current.number != command.evaluation:
            return False
        state.evaluation = None
        if state.plan.kind == "train":
            state.ledger.remove(current.dataset)
        # The same step again: the model was lost after it and trained up to it once more.
        state.results = [r for r in state.results if r["step"] != current.step]
        state.results.append({"step": current.step, "epoch": current.epoch, "metrics": command.metrics})
        return True
