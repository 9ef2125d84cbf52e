"""The rows of an audit in few words: epochs that follow each other and differ in nothing share one, with the number of
the last of them (`until`). Readers unroll them, and see what the master saw.

Where even so there are too many, as of a training that went back again and again, the older ones are left out, and what
they amount to is summed up (`left_out`), so that totals stay right. The same goes for ranges of skipped samples.

Only documents go in and out: whoever reads the status of a job need not load the ledger for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

Document = dict[str, Any]

# A job of fewer epochs is written as it is, for people who read the object itself.
_PLAIN_ROWS = 100
_ROWS_KEPT = 500
_RANGES_KEPT = 200
_EPOCH_RUNS_KEPT = 20
_TEXT_LENGTH = 200
_REASON_LENGTH = 4_000
_SUMMED = ("size", "done", "again", "skipped")


def written_short(audit: Document) -> Document:
    rows, left_out = audit["rows"], Counter[str]()
    if len(rows) > _PLAIN_ROWS:
        rows = _newest(_runs(rows), left_out)
    skipped = [_short_range(bad, left_out) for bad in audit["skipped"][:_RANGES_KEPT]]
    left_out["ranges"] += len(audit["skipped"]) - len(skipped)
    return _document(audit, rows, skipped, left_out)


def without_rows(audit: Document) -> Document:
    """Only what they amount to."""
    left_out = Counter[str]()
    for row in audit["rows"]:
        _leave_out(row, left_out)
    left_out["ranges"] += len(audit["skipped"])
    return _document(audit, [], [], left_out)


def unrolled(audit: Document) -> Document:
    """With a row for every epoch again."""
    rows: list[Document] = []
    for row in audit["rows"]:
        plain = {name: value for name, value in row.items() if name != "until"}
        rows += [{**plain, "epoch": epoch} for epoch in range(row["epoch"], _last_epoch(row) + 1)]
    return {**audit, "rows": rows}


def _document(
    audit: Document, rows: list[Document], skipped: list[Document], left_out: Counter[str]
) -> Document:
    told = {name: count for name, count in left_out.items() if count}
    return {
        "rows": rows,
        "skipped": skipped,
        "exact": audit["exact"],
        "reason": audit["reason"][:_REASON_LENGTH],
        **({"twice": audit["twice"]} if "twice" in audit else {}),
        **({"left_out": told} if told else {}),
    }


def _runs(rows: list[Document]) -> list[Document]:
    runs: list[Document] = []
    before: tuple[Any, ...] = ()
    for row in rows:
        likeness = tuple(value for name, value in row.items() if name != "epoch")
        if likeness == before and row["epoch"] == _last_epoch(runs[-1]) + 1:
            runs[-1]["until"] = row["epoch"]
        else:
            runs.append(dict(row))
        before = likeness
    return runs


def _last_epoch(run: Document) -> int:
    return int(run["until"] if "until" in run else run["epoch"])


def _newest(runs: list[Document], left_out: Counter[str]) -> list[Document]:
    """Of every data set its share."""
    if len(runs) <= _ROWS_KEPT:
        return runs
    ahead = Counter(run["dataset"] for run in runs)
    share = max(1, _ROWS_KEPT // len(ahead))
    kept: list[Document] = []
    for run in runs:
        if ahead[run["dataset"]] <= share:
            kept.append(run)
        else:
            _leave_out(run, left_out)
        ahead[run["dataset"]] -= 1
    for run in kept[:-_ROWS_KEPT]:
        _leave_out(run, left_out)
    return kept[-_ROWS_KEPT:]


def _leave_out(run: Document, left_out: Counter[str]) -> None:
    epochs = _last_epoch(run) - run["epoch"] + 1
    left_out["epochs"] += epochs
    for name in _SUMMED:
        left_out[name] += epochs * run[name]


def _short_range(bad: Document, left_out: Counter[str]) -> Document:
    left_out["epoch_runs"] += max(0, len(bad["epochs"]) - _EPOCH_RUNS_KEPT)
    texts = {name: bad[name][:_TEXT_LENGTH] for name in ("where", "reason")}
    return {**bad, **texts, "epochs": bad["epochs"][-_EPOCH_RUNS_KEPT:]}
