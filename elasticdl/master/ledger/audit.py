"""Builds the audit of a job (`elasticdl.jobs.audit`) from the ledger: what was done, trained again, skipped, and what
is missing.
"""

from __future__ import annotations

from elasticdl.jobs.audit import Audit, AuditRow, SkippedRange
from elasticdl.master.ledger.ledger import Ledger


def audit_ledger(ledger: Ledger) -> Audit:
    """Returns the audit of all data sets. It is exact only if the ledger is consistent and nothing is missing."""
    rows: list[AuditRow] = []
    skipped: list[SkippedRange] = []
    reasons = ledger.check()
    for dataset in ledger.datasets():
        of_dataset = _rows(ledger, dataset)
        rows += of_dataset
        skipped += [
            SkippedRange(
                dataset=dataset,
                start=bad.start,
                end=bad.end,
                where=bad.where,
                reason=bad.reason,
                epochs=bad.epochs,
            )
            for bad in ledger.bad_ranges(dataset)
        ]
        reasons += _missing(ledger, dataset, of_dataset)
    return Audit(
        rows=tuple(rows),
        skipped=tuple(skipped),
        exact=not reasons,
        reason="; ".join(reasons),
        twice=sum(ledger.twice(dataset) for dataset in ledger.datasets()),
    )


def _rows(ledger: Ledger, dataset: str) -> list[AuditRow]:
    spec = ledger.spec(dataset)
    stopped = ledger.stopped(dataset) and ledger.finished(dataset)
    # After a rollback there may be epochs ahead that have been trained before.
    newest = ledger.epoch(dataset)
    begun = max([newest, *ledger.again_epochs(dataset)])
    skipped = ledger.skipped_by_epoch(dataset) + [0] * (begun - newest)
    return [
        AuditRow(
            dataset=dataset,
            epoch=epoch,
            epochs=spec.epochs,
            size=spec.size,
            done=ledger.done(dataset, epoch) - skipped[epoch],
            again=ledger.again(dataset, epoch),
            skipped=skipped[epoch],
            stopped=stopped and epoch >= newest,
        )
        for epoch in range(begun + 1)
    ]


def _missing(ledger: Ledger, dataset: str, rows: list[AuditRow]) -> list[str]:
    if ledger.stopped(dataset) and not ledger.finished(dataset):
        return [f"{ledger.remaining(dataset):,} samples of {dataset} are still in work"]
    missing = [
        f"{row.left:,} of {row.size:,} samples of {dataset} are not done in epoch {row.epoch + 1}"
        for row in rows
        if not row.ok
    ]
    epochs = ledger.spec(dataset).epochs
    if not ledger.finished(dataset) and len(rows) < epochs:
        ahead = (
            f"epoch {epochs} has" if len(rows) + 1 == epochs else f"epochs {len(rows) + 1} to {epochs} have"
        )
        missing.append(f"{ahead} not begun on {dataset}")
    return missing
