"""Epochs that overlap: the next is leased while samples of the one before are still in work."""

from __future__ import annotations

import json

import pytest

from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.ledger import DatasetSpec, Lease, Ledger


def make(*, size: int = 10, epochs: int = 3, shuffle: bool = False) -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="data",
            size=size,
            shard_size=4,
            batch_size=4,
            epochs=epochs,
            shuffle=shuffle,
            seed=1,
            overlapping=True,
        )
    )
    return ledger


def take(ledger: Ledger, worker: str, count: int, request: int) -> list[Lease]:
    return ledger.lease("data", worker, count, request)


def test_the_next_epoch_is_given_out_before_the_first_is_done() -> None:
    ledger = make()
    leases = take(ledger, "a", 4, 1)
    assert [(x.epoch, x.start, x.end) for x in leases] == [(0, 0, 4), (0, 4, 8), (0, 8, 10), (1, 0, 4)]
    assert not ledger.check()
    assert ledger.done("data", 0) == 0
    ledger.progress(leases[0].lease_id, 4, 1, "a")
    assert (ledger.done("data", 0), ledger.done("data", 1)) == (4, 0)
    assert ledger.samples_done("data") == 4
    assert ledger.remaining("data") == 26


def test_shards_of_dead_worker_are_requeued_first_in_their_epoch() -> None:
    ledger = make()
    mine = take(ledger, "a", 3, 1)
    theirs = take(ledger, "b", 1, 1)
    assert theirs[0].epoch == 1
    ledger.progress(mine[1].lease_id, 6, 1, "a")
    ledger.forget_worker("a")
    again = take(ledger, "b", 4, 2)
    assert [(x.epoch, x.start, x.end) for x in again] == [(0, 0, 4), (0, 6, 8), (0, 8, 10), (1, 4, 8)]
    assert not ledger.check()


@pytest.mark.parametrize("shuffle", [False, True])
def test_all_is_done_only_when_every_epoch_is(shuffle: bool) -> None:
    ledger = make(shuffle=shuffle)
    kept = take(ledger, "slow", 1, 1)[0]
    request = 0
    while ledger.leasable("data"):
        request += 1
        for lease in take(ledger, "quick", 2, request):
            ledger.progress(lease.lease_id, lease.end, 1, "quick")
            assert not ledger.check()
    assert not ledger.finished("data")
    assert not audit_ledger(ledger).exact
    ledger.progress(kept.lease_id, kept.end, 1, "slow")
    assert ledger.finished("data")
    assert audit_ledger(ledger).exact
    assert [ledger.done("data", epoch) for epoch in range(3)] == [10, 10, 10]


def test_overlapping_epochs_restore_from_snapshot() -> None:
    ledger = make()
    take(ledger, "a", 5, 1)
    ledger.forget_worker("a")
    copy = Ledger.restore(json.loads(json.dumps(ledger.snapshot())))
    assert copy.snapshot() == ledger.snapshot()
    assert [(x.epoch, x.start) for x in take(copy, "b", 5, 1)] == [(0, 0), (0, 4), (0, 8), (1, 0), (1, 4)]


def test_going_back_counts_what_is_done_again_in_its_own_epoch() -> None:
    ledger = make()
    leases = take(ledger, "a", 4, 1)
    then = ledger.snapshot()
    for lease in leases:
        ledger.progress(lease.lease_id, lease.end, 1, "a")
    ledger.rollback(then)
    assert (ledger.again("data", 0), ledger.again("data", 1)) == (10, 4)
    assert not ledger.check()
