"""The audit says exactly what was done, what was done again, what was skipped and what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.jobs.audit import Audit, AuditRow, render
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger


def ledger_of(*, size: int = 1000, epochs: int = 2, name: str = "training") -> Ledger:
    ledger = Ledger()
    add(ledger, name, size, epochs)
    return ledger


def add(ledger: Ledger, name: str, size: int, epochs: int) -> None:
    ledger.add(
        DatasetSpec(name=name, size=size, shard_size=100, batch_size=10, epochs=epochs, shuffle=True, seed=0)
    )


def do(ledger: Ledger, shards: int = 10**6, dataset: str = "training") -> None:
    request = 1 + ledger.snapshot()["next_lease"]
    while shards > 0 and (leases := ledger.lease(dataset, "a", min(shards, 10), request)):
        request += 1
        shards -= len(leases)
        for lease in leases:
            ledger.progress(lease.lease_id, lease.end, 10, "a")


def rows(audit: Audit) -> list[tuple[Any, ...]]:
    return [(r.dataset, r.epoch, r.size, r.done, r.again, r.skipped, r.stopped, r.ok) for r in audit.rows]


def test_everything_done_is_exact() -> None:
    ledger = ledger_of()
    do(ledger)
    audit = audit_ledger(ledger)
    assert rows(audit) == [
        ("training", 0, 1000, 1000, 0, 0, False, True),
        ("training", 1, 1000, 1000, 0, 0, False, True),
    ]
    assert (audit.exact, audit.reason) == (True, "")


def test_audit_of_unfinished_epochs_names_missing_samples() -> None:
    ledger = ledger_of(epochs=4)
    do(ledger, 13)
    audit = audit_ledger(ledger)
    assert not audit.exact
    assert audit.reason == (
        "700 of 1,000 samples of training are not done in epoch 2; epochs 3 to 4 have not begun on training"
    )
    do(ledger, 17)
    assert audit_ledger(ledger).reason == "epoch 4 has not begun on training"
    do(ledger)
    assert audit_ledger(ledger).exact


def test_audit_without_any_sample_done_is_not_exact() -> None:
    assert "1,000 of 1,000 samples" in audit_ledger(ledger_of()).reason


def test_skipped_samples_count_and_are_listed() -> None:
    ledger = ledger_of()
    ledger.mark_bad("training", 10, 15, "digits.recordio:4711", "checksum does not fit")
    do(ledger)
    ledger.mark_bad("training", 10, 15, "digits.recordio:4711", "checksum does not fit")
    audit = audit_ledger(ledger)
    assert [(r.done, r.skipped, r.left) for r in audit.rows] == [(995, 5, 0)] * 2
    assert audit.exact
    assert audit.skipped[0].epochs == ((0, 1),)
    assert "  training [10, 15) at digits.recordio:4711: checksum does not fit" in render(audit).splitlines()


def test_audit_counts_samples_trained_again_in_later_epochs() -> None:
    ledger = ledger_of(epochs=3)
    checkpoint = ledger.snapshot()
    do(ledger, 15)
    ledger.rollback(checkpoint)
    ledger.stop("training")
    audit = audit_ledger(ledger)
    assert [(r.epoch, r.done, r.again) for r in audit.rows] == [(0, 0, 1000), (1, 0, 500)]
    assert audit.exact


def test_stopped_training_is_exact_with_reason() -> None:
    ledger = ledger_of(epochs=5)
    do(ledger, 12)
    (held,) = ledger.lease("training", "b", 1, 1)
    ledger.stop("training")
    # A worker is still at it.
    audit = audit_ledger(ledger)
    assert (audit.exact, audit.reason) == (False, "100 samples of training are still in work")
    assert not audit.rows[-1].ok
    ledger.progress(held.lease_id, held.start + 50, 5, "b")
    ledger.release_worker("b")
    audit = audit_ledger(ledger)
    assert audit.exact
    assert [(r.done, r.left, r.stopped) for r in audit.rows] == [(1000, 0, False), (250, 750, True)]
    assert render(audit).splitlines()[-1] == (
        "Exact: every sample is accounted for; ended on purpose with 750 left in the last epoch."
    )


def test_stopped_with_bad_samples_that_were_not_reached() -> None:
    ledger = ledger_of(epochs=1)
    (lease,) = ledger.lease("training", "a", 1, 1)
    ledger.mark_bad("training", lease.start, lease.end, "file", "lost")
    ledger.progress(lease.lease_id, lease.start + 30, 3, "a")
    ledger.stop("training")
    ledger.release_worker("a")
    (row,) = audit_ledger(ledger).rows
    assert (row.done, row.skipped, row.left) == (0, 30, 970)


def test_a_broken_ledger_is_not_exact() -> None:
    ledger = ledger_of(epochs=1)
    do(ledger)
    document = ledger.snapshot()
    document["datasets"]["training"]["queue"] = [[0, 7, 0, 0]]
    audit = audit_ledger(Ledger.restore(document))
    assert not audit.exact
    assert "1000 done + 0 held + 7 queued" in audit.reason


def test_audit_reads_back_from_json() -> None:
    ledger = ledger_of()
    add(ledger, "prediction", 30, 1)
    ledger.mark_bad("training", 1, 3, "somewhere", "somehow")
    do(ledger, 12)
    audit = audit_ledger(ledger)
    assert Audit.from_json(json.loads(json.dumps(audit.to_json()))) == audit


def test_the_table() -> None:
    ledger = ledger_of()
    add(ledger, "prediction", 12345, 1)
    checkpoint = ledger.snapshot()
    do(ledger, 3)
    ledger.rollback(checkpoint)
    do(ledger)
    do(ledger, dataset="prediction")
    assert render(audit_ledger(ledger)) == TABLE


TABLE = """\
data set    epoch  samples    done  trained again  skipped  ok
---------------------------------------------------------------
training      1/2    1,000   1,000            300        0  yes
training      2/2    1,000   1,000              0        0  yes
prediction    1/1   12,345  12,345              0        0  yes
---------------------------------------------------------------
total               14,345  14,345            300        0  yes
Exact: every sample of every epoch is accounted for."""


def test_of_many_epochs_those_that_are_alike_share_a_line() -> None:
    ledger = ledger_of(epochs=50)
    do(ledger, 300)
    ledger.accounts["training"].add_again(30, 7)
    do(ledger)
    lines = render(audit_ledger(ledger)).splitlines()
    assert [line.split()[1] for line in lines[2:-3]] == ["1-30/50", "31/50", "32-50/50"]
    assert lines[-2].split() == ["total", "50,000", "50,000", "7", "0", "yes"]


def test_many_skipped_ranges_are_counted_below_the_first() -> None:
    ledger = ledger_of(epochs=1)
    for start in range(0, 100, 2):
        ledger.mark_bad("training", start, start + 1, f"file:{start}", "checksum")
    do(ledger)
    audit = audit_ledger(ledger)
    assert len(audit.skipped) == 50
    lines = render(audit).splitlines()
    assert lines[-2] == "  and 30 more ranges"
    assert sum(line.startswith("  training") for line in lines) == 20


def test_an_empty_audit() -> None:
    audit = audit_ledger(Ledger())
    assert audit.exact
    assert render(audit).splitlines()[-1] == "Exact: there was nothing to do."


@pytest.mark.parametrize(("done", "stopped", "ok"), [(10, False, True), (9, False, False), (9, True, True)])
def test_a_row_is_right_if_nothing_is_left_or_nothing_was_wanted(done: int, stopped: bool, ok: bool) -> None:
    row = AuditRow(dataset="d", epoch=0, epochs=1, size=12, done=done, again=0, skipped=2, stopped=stopped)
    assert row.ok == ok
