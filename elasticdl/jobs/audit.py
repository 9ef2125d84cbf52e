"""The audit of a job: for every data set and epoch, how many samples were done, trained again, skipped, and what is
missing.

A job has succeeded only if its audit is exact: every sample of every epoch was passed, by a batch or as one listed as
skipped, or the training was ended on purpose before (a number of steps, early stopping), which the rows then say. The
master builds the audit from its ledger (`elasticdl.master.ledger.audit`); readers of a job's status need no ledger.

Size
    A job record holds a megabyte. `Audit.compacted` bounds the size: ranges of skipped samples and, of trainings
    that went back again and again, the older epochs are omitted and summed up (`Audit.omitted`), so that totals stay
    right. `to_json(merge_epochs=True)` writes consecutive epochs that differ in nothing but their number as one row
    with the number of the last (`until`). `from_json` reads both forms.

Failure modes
    A document that is no audit: `BadDocument`, which says where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from typing import Any

from elasticdl.jobs.json_codec import BadDocument, decode

# A job of fewer epochs is written in full, for readers of the object itself.
_PLAIN_ROWS = 100
_ROWS_KEPT = 500
_RANGES_KEPT = 200
_EPOCH_RUNS_KEPT = 20
_TEXT_LENGTH = 200
_REASON_LENGTH = 4_000
# Beyond this many rows, epochs of a data set that differ in nothing but their number share a line of the table.
_LINES_WITHOUT_MERGING = 20
# All of them are in the JSON document.
_RANGES_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """An epoch of a data set. Epochs count from 0 here, and from 1 in the table."""

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
class Omitted:
    """Sums over the rows and ranges that are not listed."""

    epochs: int = 0
    size: int = 0
    done: int = 0
    again: int = 0
    skipped: int = 0
    ranges: int = 0
    epoch_runs: int = 0

    @property
    def left(self) -> int:
        return self.size - self.done - self.skipped

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __add__(self, other: Omitted) -> Omitted:
        return Omitted(**{name: count + getattr(other, name) for name, count in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Audit:
    """`reason` says why the audit is not exact; it is empty if it is."""

    rows: tuple[AuditRow, ...]
    skipped: tuple[SkippedRange, ...]
    exact: bool
    reason: str
    # Upper bound of the samples that may count twice in the model.
    twice: int = 0
    omitted: Omitted = field(default_factory=Omitted)

    @property
    def is_empty(self) -> bool:
        """No data set was ever begun."""
        return not self.rows and not self.omitted

    def compacted(self) -> Audit:
        """Returns the audit in a bounded size, whatever the number of epochs and of skipped ranges."""
        rows, omitted = self.rows, self.omitted
        if len(rows) > _PLAIN_ROWS:
            rows, dropped = _newest_runs(_merge(rows))
            omitted += dropped
        skipped = self.skipped[:_RANGES_KEPT]
        omitted += Omitted(
            ranges=len(self.skipped) - len(skipped),
            epoch_runs=sum(max(0, len(bad.epochs) - _EPOCH_RUNS_KEPT) for bad in skipped),
        )
        return replace(
            self,
            rows=rows,
            skipped=tuple(_short_range(bad) for bad in skipped),
            reason=self.reason[:_REASON_LENGTH],
            omitted=omitted,
        )

    def totals_only(self) -> Audit:
        """Returns the audit without rows and ranges, only with what they amount to."""
        omitted = self.omitted + _sum((row, row.epoch) for row in self.rows)
        omitted += Omitted(ranges=len(self.skipped))
        return replace(self, rows=(), skipped=(), reason=self.reason[:_REASON_LENGTH], omitted=omitted)

    def to_json(self, *, merge_epochs: bool = False) -> dict[str, Any]:
        # vars instead of asdict, which copies deeply: the status is read several times a second, with all epochs.
        rows = [dict(vars(row)) for row in self.rows]
        if merge_epochs and len(rows) > _PLAIN_ROWS:
            rows = [
                {**vars(row), **({"until": last} if last > row.epoch else {})}
                for row, last in _merge(self.rows)
            ]
        return {
            "rows": rows,
            "skipped": [dict(vars(bad)) for bad in self.skipped],
            "exact": self.exact,
            "reason": self.reason,
            **({"twice": self.twice} if self.twice else {}),
            **({"left_out": {k: v for k, v in asdict(self.omitted).items() if v}} if self.omitted else {}),
        }

    @classmethod
    def from_json(cls, document: object) -> Audit:
        """Raises `BadDocument`."""
        if not isinstance(document, Mapping):
            raise BadDocument("audit: expected an object")
        rows = document.get("rows", [])
        if not isinstance(rows, list):
            raise BadDocument("audit.rows: expected a list")
        head = decode(_Head, document, path="audit")
        return cls(
            rows=tuple(row for index, found in enumerate(rows) for row in _unroll(found, index)),
            skipped=head.skipped,
            exact=head.exact,
            reason=head.reason,
            twice=head.twice,
            omitted=head.left_out,
        )


@dataclass(frozen=True, kw_only=True)
class _Head:
    """All of an audit's document but the rows, of which there may be very many."""

    skipped: tuple[SkippedRange, ...] = ()
    exact: bool
    reason: str
    twice: int = 0
    left_out: Omitted = field(default_factory=Omitted)


_ROW_TYPES = {one.name: {"str": str, "int": int, "bool": bool}[str(one.type)] for one in fields(AuditRow)}


def _unroll(document: object, index: int) -> list[AuditRow]:
    """Returns a row for every epoch of a run."""
    if not isinstance(document, Mapping):
        raise BadDocument(f"audit.rows[{index}]: expected an object")
    for name, kind in _ROW_TYPES.items():
        if type(document.get(name)) is not kind:
            raise BadDocument(f"audit.rows[{index}].{name}: missing, or not {kind.__name__}")
    first = AuditRow(**{name: document[name] for name in _ROW_TYPES})
    last = document.get("until", first.epoch)
    if type(last) is not int or not first.epoch <= last <= first.epoch + first.epochs:
        raise BadDocument(f"audit.rows[{index}].until: {last!r} is no epoch of the data set")
    return [first, *(replace(first, epoch=epoch) for epoch in range(first.epoch + 1, last + 1))]


# A row and the number of the last of the epochs from it on that are equal to it.
_Run = tuple[AuditRow, int]


def _merge(rows: Iterable[AuditRow]) -> list[_Run]:
    runs: list[_Run] = []
    before: tuple[object, ...] = ()
    for row in rows:
        key = _equality_key(row)
        if key == before and row.epoch == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], row.epoch)
        else:
            runs.append((row, row.epoch))
        before = key
    return runs


def _equality_key(row: AuditRow) -> tuple[object, ...]:
    return row.dataset, row.epochs, row.size, row.done, row.again, row.skipped, row.stopped


def _newest_runs(runs: Sequence[_Run]) -> tuple[tuple[AuditRow, ...], Omitted]:
    """Keeps the newest runs, of every data set its share. Returns their rows, and the sums of the others."""
    dropped: list[_Run] = []
    if len(runs) > _ROWS_KEPT:
        remaining = Counter(row.dataset for row, _ in runs)
        share = max(1, _ROWS_KEPT // len(remaining))
        kept: list[_Run] = []
        for run in runs:
            (kept if remaining[run[0].dataset] <= share else dropped).append(run)
            remaining[run[0].dataset] -= 1
        dropped += kept[:-_ROWS_KEPT]
        runs = kept[-_ROWS_KEPT:]
    rows = tuple(
        replace(row, epoch=epoch) if epoch > row.epoch else row
        for row, last in runs
        for epoch in range(row.epoch, last + 1)
    )
    return rows, _sum(dropped)


def _sum(runs: Iterable[_Run]) -> Omitted:
    counts = Counter[str]()
    for row, last in runs:
        epochs = last - row.epoch + 1
        counts["epochs"] += epochs
        for name in _COLUMNS:
            counts[name] += epochs * getattr(row, name)
    return Omitted(**counts)


def _short_range(bad: SkippedRange) -> SkippedRange:
    return replace(
        bad,
        where=bad.where[:_TEXT_LENGTH],
        reason=bad.reason[:_TEXT_LENGTH],
        epochs=bad.epochs[-_EPOCH_RUNS_KEPT:],
    )


# -- the table -----------------------------------------------------------------------------------------------

_HEADER = ("data set", "epoch", "samples", "done", "trained again", "skipped", "ok")
_COLUMNS = ("size", "done", "again", "skipped")


def render(audit: Audit) -> str:
    """Returns the audit as a plain table, with totals, the skipped ranges, and a last line with the verdict."""
    table = [_HEADER]
    if audit.omitted.epochs:
        epochs = f"{audit.omitted.epochs:,} epochs"
        table.append(("left out", epochs, *_figures((), beside=audit.omitted), ""))
    groups = [(row.dataset, [row]) for row in audit.rows]
    if len(audit.rows) > _LINES_WITHOUT_MERGING:
        groups = [
            (rows[0].dataset, rows) for rows in (list(g) for _, g in groupby(audit.rows, key=_equality_key))
        ]
    for dataset, rows in groups:
        first, last = rows[0], rows[-1]
        epoch = str(first.epoch + 1) if first is last else f"{first.epoch + 1}-{last.epoch + 1}"
        verdict = "no" if not first.ok else "stopped" if first.left else "yes"
        # A merged line shows the figures of each epoch, not their sum.
        table.append((dataset, f"{epoch}/{first.epochs}", *_figures([first]), verdict))
    total = _figures(audit.rows, beside=audit.omitted)
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
            "did not say what they had of it."
        )
    lines.append(_verdict(audit))
    return "\n".join(lines)


def _figures(rows: Sequence[AuditRow], *, beside: Omitted | None = None) -> tuple[str, str, str, str]:
    more = beside or Omitted()
    size, done, again, skipped = (
        f"{sum(getattr(row, column) for row in rows) + getattr(more, column):,}" for column in _COLUMNS
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
    ranges = len(audit.skipped) + audit.omitted.ranges
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
    if audit.is_empty:
        return "Exact: there was nothing to do."
    left = sum(row.left for row in audit.rows) + audit.omitted.left
    if left or any(row.stopped for row in audit.rows):
        return f"Exact: every sample is accounted for; ended on purpose with {left:,} left in the last epoch."
    return "Exact: every sample of every epoch is accounted for."
