"""How epochs follow each other, and how a data set ends: by itself, or because it is stopped."""

from __future__ import annotations

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError


def ledger_of(*, epochs: int, gated: bool) -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="training",
            size=20,
            shard_size=10,
            batch_size=10,
            epochs=epochs,
            shuffle=True,
            seed=3,
            gated=gated,
        )
    )
    return ledger


def do_epoch(ledger: Ledger, request_id: int) -> None:
    for lease in ledger.lease("training", "a", 9, request_id):
        ledger.progress(lease.lease_id, lease.end, 1, "a")


def test_an_epoch_begins_when_the_one_before_is_done() -> None:
    ledger = ledger_of(epochs=2, gated=False)
    one, two = ledger.lease("training", "a", 9, 1)
    ledger.progress(one.lease_id, one.end, 1, "a")
    assert ledger.lease("training", "b", 1, 1) == []
    ledger.progress(two.lease_id, two.end, 1, "a")
    assert ledger.epoch_done("training")
    assert ledger.epoch("training") == 0
    assert ledger.leasable("training")
    assert {lease.epoch for lease in ledger.lease("training", "b", 9, 1)} == {1}
    assert (ledger.done("training", 0), ledger.done("training", 1), ledger.done("training", 2)) == (20, 0, 0)
    assert ledger.remaining("training") == ledger.remaining("training", 1) == 20


def test_a_gated_epoch_waits_to_be_opened() -> None:
    ledger = ledger_of(epochs=2, gated=True)
    do_epoch(ledger, 1)
    assert not ledger.leasable("training")
    assert ledger.lease("training", "a", 9, 2) == []
    assert not ledger.finished("training")
    ledger.open_next_epoch("training")
    assert ledger.epoch("training") == 1
    do_epoch(ledger, 2)
    assert ledger.finished("training")


def test_epoch_opened_out_of_order_is_refused() -> None:
    ledger = ledger_of(epochs=2, gated=True)
    with pytest.raises(LedgerError, match="0 of 20 samples of epoch 1 of 2 are done"):
        ledger.open_next_epoch("training")
    do_epoch(ledger, 1)
    ledger.open_next_epoch("training")
    do_epoch(ledger, 2)
    with pytest.raises(LedgerError, match="cannot begin"):
        ledger.open_next_epoch("training")


def test_after_a_stop_only_what_is_held_may_be_done() -> None:
    ledger = ledger_of(epochs=5, gated=False)
    (lease,) = ledger.lease("training", "a", 1, 1)
    ledger.stop("training")
    assert ledger.stopped("training")
    assert not ledger.leasable("training")
    assert ledger.lease("training", "b", 1, 1) == []
    assert not ledger.finished("training")
    assert ledger.remaining("training") == 10
    ledger.progress(lease.lease_id, lease.end, 1, "a")
    assert ledger.finished("training")
    assert ledger.remaining("training") == 0


def test_stop_at_end_of_epoch_finishes_the_data_set() -> None:
    ledger = ledger_of(epochs=5, gated=True)
    do_epoch(ledger, 1)
    ledger.stop("training")
    assert ledger.finished("training")
    with pytest.raises(LedgerError, match="stopped"):
        ledger.open_next_epoch("training")


def test_leases_of_killed_worker_are_not_requeued_after_stop() -> None:
    ledger = ledger_of(epochs=1, gated=False)
    ledger.lease("training", "a", 1, 1)
    ledger.stop("training")
    ledger.release_worker("a")
    assert ledger.finished("training")
    assert ledger.lease("training", "b", 1, 1) == []


def test_reset_restarts_and_counts_what_is_done_again() -> None:
    ledger = ledger_of(epochs=3, gated=False)
    do_epoch(ledger, 1)
    (held,) = ledger.lease("training", "a", 1, 2)
    ledger.progress(held.lease_id, held.start + 5, 1, "a")
    ledger.stop("training")
    ledger.reset_dataset("training")
    assert (ledger.epoch("training"), ledger.samples_done("training")) == (0, 0)
    assert (ledger.again("training", 0), ledger.again("training", 1)) == (20, 5)
    assert ledger.held_by("a") == []
    assert not ledger.finished("training")
    assert min(lease.lease_id for lease in ledger.lease("training", "a", 9, 3)) > held.lease_id
