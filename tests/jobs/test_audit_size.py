"""An audit in bounded size: equal epochs share a row, older ones are summed up, and totals stay right."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elasticdl.jobs.audit import Audit, AuditRow, Omitted, SkippedRange, render
from elasticdl.jobs.json_codec import BadDocument


def rows(count: int, *, datasets: int = 1) -> tuple[AuditRow, ...]:
    """No two alike."""
    return tuple(
        AuditRow(
            dataset=f"set-{number}",
            epoch=epoch,
            epochs=count,
            size=100,
            done=99,
            again=epoch,
            skipped=1,
            stopped=False,
        )
        for number in range(datasets)
        for epoch in range(count)
    )


@pytest.mark.parametrize(("count", "datasets"), [(20_000, 1), (5_000, 4), (2, 2_000)])
def test_compacted_audit_of_unequal_epochs_keeps_totals(count: int, datasets: int) -> None:
    audit = Audit(rows=rows(count, datasets=datasets), skipped=(), exact=True, reason="")
    document = audit.compacted().to_json(merge_epochs=True)
    assert len(json.dumps(document)) < 100_000
    assert document["left_out"]["epochs"] + len(document["rows"]) == count * datasets
    read = Audit.from_json(document)
    assert read.rows[-1] == audit.rows[-1]
    lines = render(read).splitlines()
    assert f"{document['left_out']['epochs']:,} epochs" in lines[2]
    # The total, and the verdict.
    assert [line.split() for line in lines[-2:]] == [line.split() for line in render(audit).splitlines()[-2:]]


def test_compacted_audit_counts_omitted_ranges() -> None:
    skipped = tuple(
        SkippedRange(
            dataset="d",
            start=10 * place,
            end=10 * place + 1,
            where="w" * 500,
            reason="r" * 500,
            epochs=tuple((epoch, epoch) for epoch in range(0, 200, 2)),
        )
        for place in range(10_000)
    )
    audit = Audit(rows=(), skipped=skipped, exact=True, reason="x" * 10**6)
    document = audit.compacted().to_json()
    assert len(json.dumps(document)) < 200_000
    assert "  and 9980 more ranges" in render(Audit.from_json(document)).splitlines()


def equal_rows(count: int) -> tuple[AuditRow, ...]:
    return tuple(
        AuditRow(dataset="d", epoch=n, epochs=count, size=9, done=9, again=0, skipped=0, stopped=False)
        for n in range(count)
    )


def test_equal_epochs_share_a_row_of_the_document() -> None:
    rows = list(equal_rows(300))
    rows[200] = replace(rows[200], again=5)
    audit = Audit(rows=tuple(rows), skipped=(), exact=True, reason="")
    document = audit.to_json(merge_epochs=True)
    assert [(row["epoch"], row.get("until")) for row in document["rows"]] == [
        (0, 199),
        (200, None),
        (201, 299),
    ]
    assert Audit.from_json(json.loads(json.dumps(document))) == audit
    assert audit.compacted() == audit


def test_few_epochs_have_a_row_each() -> None:
    audit = Audit(rows=equal_rows(100), skipped=(), exact=True, reason="")
    assert audit.to_json(merge_epochs=True) == audit.to_json()
    assert len(audit.to_json()["rows"]) == 100


def test_totals_only_sums_up_what_was_omitted_before() -> None:
    audit = Audit(rows=equal_rows(3), skipped=(), exact=True, reason="", omitted=Omitted(epochs=2, size=18))
    assert audit.totals_only().omitted == Omitted(epochs=5, size=45, done=27)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"done": "9"}, r"audit\.rows\[0\]\.done"),
        ({"until": 10**12}, r"audit\.rows\[0\]\.until: 1000000000000 is no epoch"),
        ({"until": -1}, r"audit\.rows\[0\]\.until"),
    ],
)
def test_damaged_row_is_refused_with_its_place(change: dict[str, object], problem: str) -> None:
    document = Audit(rows=equal_rows(1), skipped=(), exact=True, reason="").to_json()
    document["rows"][0] |= change
    with pytest.raises(BadDocument, match=problem):
        Audit.from_json(document)
