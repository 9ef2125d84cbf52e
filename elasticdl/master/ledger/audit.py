"""The audit: for every data set and epoch, how many samples were done, done again, skipped, and what is
missing.

It is the ledger's last word, printed at the end of a job and kept with its record. A job has succeeded only
if its audit is exact: every sample of every epoch was passed, by a batch or as one listed below as skipped,
or the training was ended on purpose before (a number of steps, early stopping), which the rows then say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from elasticdl.master.ledger.audit_rows import unrolled
from elasticdl.master.ledger.ledger import Ledger

# Beyond so many rows, epochs of a data set that differ in nothing but their number share a line.
_ROWS_TOLD_APART = 20
# All of them are in the JSON document.
_RANGES_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One epoch of one data set. Epochs count from 0 here, and from 1 where people read them."""

    dataset: str
    epoch: int
    epochs: int
    size: int
    # Without the skipped ones: done + skipped + left == size.
    done: int
    again: int
    skipped: int
    # The data set was ended on purpose; what is left in its last epoch is not missing.
    stopped: bool

    @property
    def left(self) -> int:
        return self.size - self.done - self.skipped

    @property
    def ok(self) -> bool:
        return self.left == 0 or self.stopped


@dataclass(frozen=True, kw_only=True)
class SkippedRange:
    """Samples [start, end) that could not be read, in the given runs (first, last) of epochs."""

    dataset: str
    start: int
    end: int
    where: str
    reason: str
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """`reason` says why the audit is not exact; it is empty if it is."""

    rows: tuple[AuditRow, ...]
    skipped: tuple[SkippedRange, ...]
    exact: bool
    reason: str
    # Samples that may count twice in the model: no more than these.
    twice: int = 0
    # What there was no room for in the record that this was read from, summed up (`audit_rows.py`).
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Ledger) -> Audit:
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
        return cls(
            rows=tuple(rows),
            skipped=tuple(skipped),
            exact=not reasons,
            reason="; ".join(reasons),
            twice=sum(ledger.twice(dataset) for dataset in ledger.datasets()),
        )

    def to_json(self) -> dict[str, Any]:
        # Not asdict, which copies as deep as it goes: this is asked for several times a second, of all epochs.
        return {
            "rows": [dict(vars(row)) for row in self.rows],
            "skipped": [dict(vars(bad)) for bad in self.skipped],
            "exact": self.exact,
            "reason": self.reason,
            **({"twice": self.twice} if self.twice else {}),
            **({"left_out": dict(self.left_out)} if self.left_out else {}),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Audit:
        document = unrolled(document)
        return cls(
            rows=tuple(AuditRow(**row) for row in document["rows"]),
            skipped=tuple(
                SkippedRange(**{**bad, "epochs": tuple((run[0], run[1]) for run in bad["epochs"])})
                for bad in document["skipped"]
            ),
            exact=document["exact"],
            reason=document["reason"],
            twice=document.get("twice", 0),
            left_out=document.get("left_out", {}),
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


# -- for people ----------------------------------------------------------------------------------------------

_HEADER = ("data set", "epoch", "samples", "done", "trained again", "skipped", "ok")
_COLUMNS = ("size", "done", "again", "skipped")


def render(audit: Audit) -> str:
    """The audit as a plain table, with totals, the skipped ranges, and a last line with the verdict."""
    table = [_HEADER]
    if audit.left_out.get("epochs"):
        epochs = f"{audit.left_out['epochs']:,} epochs"
        table.append(("left out", epochs, *_figures((), beside=audit.left_out), ""))
    groups = [(row.dataset, [row]) for row in audit.rows]
    if len(audit.rows) > _ROWS_TOLD_APART:
        groups = [(key[0], list(rows)) for key, rows in groupby(audit.rows, key=_likeness)]
    for dataset, rows in groups:
        first, last = rows[0], rows[-1]
        epoch = str(first.epoch + 1) if first is last else f"{first.epoch + 1}-{last.epoch + 1}"
        verdict = "no" if not first.ok else "stopped" if first.left else "yes"
        # Of epochs that are alike each one's figures are shown, and not their sum.
        table.append((dataset, f"{epoch}/{first.epochs}", *_figures([first]), verdict))
    total = _figures(audit.rows, beside=audit.left_out)
    table.append(("total", "", *total, "yes" if audit.exact else "no"))
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADER))]
    lines = [_line(line, widths) for line in table]
    rule = "-" * max(len(line) for line in lines)
    lines[1:1] = [rule]
    lines[-1:-1] = [rule]
    lines += _skipped_lines(audit)
    if audit.twice:
        lines.append(
            f"Up to {audit.twice:,} samples may count twice in the model: a worker was lost, and the parameter servers "
            "did not say in time what they had of it."
        )
    lines.append(_verdict(audit))
    return "\n".join(lines)


def _likeness(row: AuditRow) -> tuple[str, int, int, int, int, bool]:
    return row.dataset, row.size, row.done, row.again, row.skipped, row.stopped


def _figures(
    rows: tuple[AuditRow, ...] | list[AuditRow], *, beside: Mapping[str, int] | None = None
) -> tuple[str, str, str, str]:
    size, done, again, skipped = (
        f"{sum(getattr(row, column) for row in rows) + (beside or {}).get(column, 0):,}"
        for column in _COLUMNS
    )
    return size, done, again, skipped


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    # Numbers to the right, words to the left.
    aligned = [
        cell.rjust(width) if 1 <= column <= 5 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _skipped_lines(audit: Audit) -> list[str]:
    ranges = len(audit.skipped) + audit.left_out.get("ranges", 0)
    if not ranges:
        return []
    lines = ["Skipped samples:"]
    lines += [
        f"  {bad.dataset} [{bad.start}, {bad.end}) at {bad.where}: {bad.reason}"
        for bad in audit.skipped[:_RANGES_SHOWN]
    ]
    more = ranges - min(len(audit.skipped), _RANGES_SHOWN)
    if more:
        lines.append(f"  and {more} more ranges")
    return lines


def _verdict(audit: Audit) -> str:
    if not audit.exact:
        return f"Not exact: {audit.reason}."
    if not audit.rows and not audit.left_out:
        return "Exact: there was nothing to do."
    out = audit.left_out
    left = sum(row.left for row in audit.rows)
    left += out.get("size", 0) - out.get("done", 0) - out.get("skipped", 0)
    if left or any(row.stopped for row in audit.rows):
        return f"Exact: every sample is accounted for; ended on purpose with {left:,} left in the last epoch."
    return "Exact: every sample of every epoch is accounted for."
