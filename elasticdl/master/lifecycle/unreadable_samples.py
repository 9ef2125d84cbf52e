"""Samples that cannot be read: marked in the ledger, up to --max_bad_records of them."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.master.commands.shards import UnreadableSamples
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import JobFailure


class UnreadableSampleLimit:
    def __init__(self, *, ledger: Ledger, outcome: JobOutcome, max_samples: int) -> None:
        self._ledger = ledger
        self._outcome = outcome
        self._max_samples = max_samples

    def mark(self, found: Sequence[UnreadableSamples]) -> None:
        """Fails the job if there are more than allowed.

        Raises `LedgerError` if some do not exist; none is marked then.
        """
        for one in found:
            self._ledger.check_range(one.dataset, one.start, one.end)
        for one in found:
            self._ledger.mark_bad(one.dataset, one.start, one.end, one.where, one.reason)
        if not found:
            return
        skipped = sum(self._ledger.skipped(name) for name in self._ledger.datasets())
        if skipped > self._max_samples:
            where = "; ".join(f"{one.where}: {one.reason}" for one in found[:3])
            self._outcome.fail(
                JobFailure(
                    message=f"{skipped} samples cannot be read, --max_bad_records allows {self._max_samples}. "
                    f"The newest: {where}"
                ),
                "",
            )
