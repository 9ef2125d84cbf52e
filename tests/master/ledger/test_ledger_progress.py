"""What reports of progress do to the account, however often and in whatever order they come."""

from __future__ import annotations

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Lease, Ledger, LedgerError, LostLease


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(name="training", size=100, shard_size=50, batch_size=10, epochs=1, shuffle=False, seed=0)
    )
    return ledger


@pytest.fixture
def lease(ledger: Ledger) -> Lease:
    return ledger.lease("training", "a", 1, 1)[0]


def test_positions_count_once(ledger: Ledger, lease: Lease) -> None:
    assert ledger.progress(lease.lease_id, 20, 2, "a") == 20
    assert ledger.progress(lease.lease_id, 20, 2, "a") == 0
    assert ledger.progress(lease.lease_id, 10, 1, "a") == 0
    assert ledger.progress(lease.lease_id, 30, 3, "a") == 10
    assert ledger.samples_done("training") == ledger.done("training", 0) == 30
    assert ledger.remaining("training") == 70
    assert ledger.steps == 3


def test_at_its_end_a_lease_is_done_and_forgotten(ledger: Ledger, lease: Lease) -> None:
    assert ledger.progress(lease.lease_id, 50, 5, "a") == 50
    assert ledger.held_by("a") == []
    with pytest.raises(LostLease):
        ledger.progress(lease.lease_id, 50, 5, "a")


def test_steps_are_all_batches_of_all_workers(ledger: Ledger, lease: Lease) -> None:
    (other,) = ledger.lease("training", "b", 1, 1)
    ledger.progress(lease.lease_id, 30, 3, "a")
    ledger.progress(other.lease_id, 100, 5, "b")
    ledger.release_worker("a")
    (rest,) = ledger.lease("training", "b", 1, 2)
    # In a new lease batches count from 0.
    ledger.progress(rest.lease_id, 50, 2, "b")
    assert ledger.steps == 10


@pytest.mark.parametrize(("lease_id", "worker"), [(99, "a"), (1, "b")])
def test_progress_on_lease_of_another_worker_is_rejected(
    ledger: Ledger, lease: Lease, lease_id: int, worker: str
) -> None:
    before = ledger.snapshot()
    with pytest.raises(LostLease, match=f"Lease {lease_id} is not held by {worker}"):
        ledger.progress(lease_id, 10, 1, worker)
    assert ledger.snapshot() == before


@pytest.mark.parametrize("position", [-1, 51])
def test_a_position_outside_of_the_lease_is_refused(ledger: Ledger, lease: Lease, position: int) -> None:
    before = ledger.snapshot()
    with pytest.raises(LedgerError, match=r"outside of lease 1, samples \[0, 50\) of training"):
        ledger.progress(lease.lease_id, position, 1, "a")
    assert ledger.snapshot() == before


def test_an_atomic_shard_is_done_at_its_end_or_not_at_all(ledger: Ledger, lease: Lease) -> None:
    assert ledger.progress(lease.lease_id, 20, 2, "a", atomic=True) == 0
    # The batches were made, and move the step, all the same.
    assert ledger.progress(lease.lease_id, 10, 4, "a") == 0
    assert ledger.steps == 4
    returned = ledger.release(lease.lease_id)
    assert (returned.start, returned.end) == (0, 50)
    (again,) = ledger.lease("training", "b", 1, 1)
    assert ledger.progress(again.lease_id, 50, 5, "b", atomic=True) == 50


def test_held_lease_has_reported_position(ledger: Ledger, lease: Lease) -> None:
    ledger.progress(lease.lease_id, 20, 2, "a")
    (held,) = ledger.held_by("a")
    assert (held.start, held.position, held.end, held.batches) == (0, 20, 50, 2)
    assert ledger.held("training") == [held]
