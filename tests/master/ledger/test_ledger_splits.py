"""The end of an epoch: who is asked to give work to an idle worker, how much, and what becomes of it."""

from __future__ import annotations

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Lease, Ledger, LedgerError, LostLease


def ledger_of(size: int, shard_size: int, batch_size: int = 10) -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="training",
            size=size,
            shard_size=shard_size,
            batch_size=batch_size,
            epochs=1,
            shuffle=False,
            seed=0,
        )
    )
    return ledger


def lease(ledger: Ledger, worker: str, count: int = 1) -> list[Lease]:
    return ledger.lease("training", worker, count, 1)


def test_nothing_is_split_while_something_is_left() -> None:
    ledger = ledger_of(200, 100)
    lease(ledger, "a")
    assert ledger.split("training", "idle") is None
    lease(ledger, "b")
    assert ledger.split("training", "idle") is not None
    ledger.release_worker("b")
    assert ledger.split("training", "idle") is None


def test_the_rest_is_halved_at_a_batch() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    ledger.progress(held.lease_id, 30, 3, "a")
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    # 70 are left: the owner keeps four batches, the idle one gets the rest.
    assert (proposal.lease_id, proposal.worker, proposal.new_end) == (held.lease_id, "a", 70)
    assert proposal.samples == 30


def test_the_owner_keeps_a_margin() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    ledger.progress(held.lease_id, 60, 6, "a")
    proposal = ledger.split("training", "idle", margin_batches=3)
    assert proposal is not None
    assert proposal.new_end == 90
    assert ledger.split("training", "idle", margin_batches=4) is None


def test_the_worker_with_most_left_is_asked() -> None:
    ledger = ledger_of(300, 100)
    (a,) = lease(ledger, "a")
    (b,) = lease(ledger, "b")
    (c,) = lease(ledger, "c")
    ledger.progress(a.lease_id, 50, 5, "a")
    ledger.progress(b.lease_id, 110, 1, "b")
    ledger.progress(c.lease_id, 240, 4, "c")
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    assert proposal.worker == "b"
    # A worker that has been asked already is not asked twice.
    proposal = ledger.split("training", "idle", exclude={b.lease_id})
    assert proposal is not None
    assert proposal.worker == "c"


def test_a_shard_that_was_not_begun_is_taken_whole() -> None:
    ledger = ledger_of(300, 100)
    first, _second, third = lease(ledger, "a", 3)
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    assert (proposal.lease_id, proposal.new_end) == (third.lease_id, third.start)
    returned = ledger.truncate(third.lease_id, "a", proposal.new_end)
    assert returned is not None
    assert (returned.start, returned.end) == (200, 300)
    assert third.lease_id not in {held.lease_id for held in ledger.held_by("a")}
    assert first in ledger.held_by("a")


def test_unstarted_shard_is_split_if_it_is_most_of_the_remainder() -> None:
    ledger = ledger_of(200, 100)
    first, second = lease(ledger, "a", 2)
    ledger.progress(first.lease_id, 80, 8, "a")
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    # 120 are left: the owner keeps 20 + 40 of them.
    assert (proposal.lease_id, proposal.new_end) == (second.lease_id, 140)


def test_a_single_batch_is_taken_whole() -> None:
    ledger = ledger_of(20, 10)
    first, second = lease(ledger, "a", 2)
    ledger.progress(first.lease_id, 5, 1, "a")
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    assert (proposal.lease_id, proposal.new_end) == (second.lease_id, second.start)


def test_an_idle_worker_does_not_ask_itself() -> None:
    ledger = ledger_of(100, 100)
    lease(ledger, "a")
    assert ledger.split("training", "a") is None


def test_an_atomic_shard_is_taken_whole_or_not_at_all() -> None:
    ledger = ledger_of(300, 100)
    first, second, third = lease(ledger, "a", 3)
    for held in (first, second, third):
        ledger.leases.find(held.lease_id)[1].atomic = True
    ledger.progress(third.lease_id, third.start, 1, "a")
    proposal = ledger.split("training", "idle")
    assert proposal is not None
    assert (proposal.lease_id, proposal.new_end) == (second.lease_id, second.start)
    # The oldest is being worked on, the newest has been begun.
    assert ledger.split("training", "idle", exclude={second.lease_id}) is None


def test_a_stopped_data_set_is_not_split() -> None:
    ledger = ledger_of(100, 100)
    lease(ledger, "a")
    ledger.stop("training")
    assert ledger.split("training", "idle") is None


def test_truncated_range_is_leased_to_idle_worker() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    ledger.truncate(held.lease_id, "a", 60)
    (other,) = lease(ledger, "idle")
    assert (other.start, other.end) == (60, 100)
    ledger.progress(other.lease_id, 100, 4, "idle")
    assert ledger.progress(held.lease_id, 60, 6, "a") == 60
    assert ledger.finished("training")
    with pytest.raises(LostLease):
        ledger.progress(held.lease_id, 70, 7, "a")


def test_refused_or_repeated_truncation_has_no_effect() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    before = ledger.snapshot()
    assert ledger.truncate(held.lease_id, "a", 100) is None
    assert ledger.snapshot() == before
    assert ledger.truncate(held.lease_id, "a", 60) is not None
    before = ledger.snapshot()
    assert ledger.truncate(held.lease_id, "a", 60) is None
    assert ledger.snapshot() == before


def test_truncation_below_reported_position_is_rejected() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    ledger.progress(held.lease_id, 60, 6, "a")
    before = ledger.snapshot()
    with pytest.raises(LedgerError, match="cannot end at 50: it is done up to 60"):
        ledger.truncate(held.lease_id, "a", 50)
    with pytest.raises(LostLease):
        ledger.truncate(held.lease_id, "b", 80)
    assert ledger.snapshot() == before


def test_all_that_is_left_may_be_given_up() -> None:
    ledger = ledger_of(100, 100)
    (held,) = lease(ledger, "a")
    ledger.progress(held.lease_id, 60, 6, "a")
    ledger.truncate(held.lease_id, "a", 60)
    assert ledger.held_by("a") == []
    assert ledger.remaining("training") == 40
    assert ledger.check() == []
