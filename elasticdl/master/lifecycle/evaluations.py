"""The evaluation of a job, from the barrier at which it begins to its values: workers report shards, one finishes it.

What one evaluation consists of is in `evaluation.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticdl.master.commands.evaluations import ClaimEvaluation, FinishEvaluation, ReportEvaluation
from elasticdl.master.dataset_names import EVALUATION
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.lifecycle.unreadable_samples import UnreadableSampleLimit
from elasticdl.master.settings import JobSettings


class Evaluations:
    def __init__(
        self,
        *,
        settings: JobSettings,
        ledger: Ledger,
        roster: Roster,
        sizes: DatasetSizes,
        unreadable: UnreadableSampleLimit,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._roster = roster
        self._sizes = sizes
        self._unreadable = unreadable
        # The one under way.
        self.current: Evaluation | None = None
        # {"step", "epoch", "metrics"}, in order.
        self.results: list[dict[str, Any]] = []
        # Older ones that a recovered snapshot does not have.
        self.results_dropped = 0
        # How many times --evaluation_steps have been reached and evaluated.
        self._mark = 0

    # -- commands --------------------------------------------------------------------------------------------

    def report(self, command: ReportEvaluation) -> None:
        current, lease_id = self.current, command.lease_id
        if current is None or current.number != command.evaluation:
            return
        held = {lease.lease_id: lease for lease in self._ledger.held_by(command.worker)}
        if lease_id not in held:
            return
        self._unreadable.mark([replace(found, dataset=current.dataset) for found in command.bad])
        self._ledger.progress(lease_id, held[lease_id].end, 0, command.worker)
        current.add(command.states)

    def claim(self, command: ClaimEvaluation) -> bool:
        current = self.current
        if current is None or current.number != command.evaluation:
            return False
        if not self._ledger.finished(current.dataset) or current.finisher not in ("", command.worker):
            return False
        current.finisher = command.worker
        return True

    def finish(self, command: FinishEvaluation) -> bool:
        current = self.current
        if current is None or current.number != command.evaluation:
            return False
        self.current = None
        if self._settings.kind == "train":
            self._ledger.remove(current.dataset)
        # The same step again: the job has rolled back after it and trained up to it once more.
        self.results = [result for result in self.results if result["step"] != current.step]
        self.results.append({"step": current.step, "epoch": current.epoch, "metrics": command.metrics})
        return True

    # -- what the schedule asks for --------------------------------------------------------------------------

    def begin(self, *, number: int, epoch: int) -> None:
        """Begins the evaluation of the snapshot of that barrier; `epoch`: the one that ends with it, or -1."""
        self.current = Evaluation(number=number, step=self._ledger.steps, epoch=epoch)
        workers = len(self._roster.alive("worker"))
        size = self._sizes.get(EVALUATION)
        self._ledger.add(self._settings.single_pass(self.current.dataset, size, workers=workers))

    def skip_due(self) -> None:
        """Evaluations are due again only when --evaluation_steps more have been done."""
        self._mark = self._reached()

    def cancel(self) -> None:
        """The snapshot that it evaluates is gone."""
        if self.current is not None:
            self._ledger.remove(self.current.dataset)
            self.current = None

    def cancel_and_repeat(self) -> None:
        """Cancels an evaluation whose end may be lost with the journal, and makes it due again."""
        if self.current is not None and self._settings.evaluation_steps:
            self._mark -= 1
        self.cancel()

    def remove_leftovers(self) -> None:
        """Accounts of evaluations that a ledger of before has, and that are not continued."""
        for name in self._ledger.datasets():
            if name.startswith(f"{EVALUATION}-"):
                self._ledger.remove(name)

    def forget_worker(self, worker: str) -> None:
        """A worker has ended: another one may finish the evaluation."""
        if self.current is not None and self.current.finisher == worker:
            self.current.finisher = ""

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """--evaluation_steps have been reached once more."""
        return self._settings.evaluates and self.current is None and self._reached() > self._mark

    @property
    def waits_for_finisher(self) -> bool:
        """All of the data is done, and no worker computes the values yet."""
        current = self.current
        return current is not None and not current.finisher and self._ledger.finished(current.dataset)

    def of_epoch(self, epoch: int) -> dict[str, float] | None:
        """The metrics at the end of an epoch, if it has been evaluated."""
        found = (result["metrics"] for result in reversed(self.results) if result["epoch"] == epoch)
        return next(found, None)

    def _reached(self) -> int:
        every = self._settings.evaluation_steps
        return self._ledger.steps // every if every else 0

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "evaluation": self.current.snapshot() if self.current else None,
            "results": self.results,
            "results_forgotten": self.results_dropped,
            "evaluation_mark": self._mark,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        current = snapshot["evaluation"]
        self.current = Evaluation.restore(current) if current else None
        self.results = snapshot["results"]
        self.results_dropped = snapshot["results_forgotten"]
        self._mark = snapshot["evaluation_mark"]
