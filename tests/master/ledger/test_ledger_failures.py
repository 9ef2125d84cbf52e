"""Shards on which the program fails: tried again so often and no more. Being killed is no failure."""

from __future__ import annotations

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LostLease, ShardGivesUp


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.add(
        DatasetSpec(
            name="training",
            size=40,
            shard_size=10,
            batch_size=5,
            epochs=1,
            shuffle=False,
            seed=0,
            max_shard_failures=2,
        )
    )
    return ledger


def test_a_shard_gives_up_after_one_failure_too_many(ledger: Ledger) -> None:
    for attempt in range(1, 3):
        lease, _other = ledger.lease("training", f"w{attempt}", 2, 1)
        assert lease.failures == attempt - 1
        returned = ledger.release_worker(f"w{attempt}", failed_lease=lease.lease_id)
        assert [r.failures for r in returned] == [attempt, 0]
    lease, _other = ledger.lease("training", "w3", 2, 1)
    ledger.progress(lease.lease_id, 5, 1, "w3")
    with pytest.raises(
        ShardGivesUp, match=r"failed 3 times on samples \[5, 10\) of training, epoch 1"
    ) as gives_up:
        ledger.release_worker("w3", failed_lease=lease.lease_id)
    assert gives_up.value.returned.failures == 3
    # Nothing of it is lost, should the caller want to go on.
    assert ledger.held_by("w3") == []
    assert ledger.remaining("training") == 35
    assert ledger.check() == []


def test_one_lease_gives_up_as_well(ledger: Ledger) -> None:
    for attempt in range(2):
        (lease,) = ledger.lease("training", "w", 1, attempt)
        assert ledger.release(lease.lease_id, failed=True).failures == attempt + 1
    (lease,) = ledger.lease("training", "w", 1, 2)
    with pytest.raises(ShardGivesUp):
        ledger.release(lease.lease_id, failed=True)


def test_workers_may_be_killed_as_often_as_they_like(ledger: Ledger) -> None:
    for attempt in range(20):
        (lease,) = ledger.lease("training", f"w{attempt}", 1, 1)
        assert lease.failures == 0
        ledger.release_worker(f"w{attempt}")


def test_failures_follow_the_part_that_is_given_up(ledger: Ledger) -> None:
    (lease,) = ledger.lease("training", "a", 1, 1)
    ledger.release(lease.lease_id, failed=True)
    (lease,) = ledger.lease("training", "a", 1, 2)
    ledger.truncate(lease.lease_id, "a", 5)
    (part,) = ledger.lease("training", "b", 1, 1)
    assert (part.start, part.end, part.failures) == (5, 10, 1)


def test_the_failure_of_another_workers_lease_is_not_counted_here(ledger: Ledger) -> None:
    (mine,) = ledger.lease("training", "a", 1, 1)
    (theirs,) = ledger.lease("training", "b", 1, 1)
    assert [r.failures for r in ledger.release_worker("a", failed_lease=theirs.lease_id)] == [0]
    assert ledger.held_by("b") == [theirs]
    assert mine.lease_id != theirs.lease_id


def test_release_of_unknown_lease_is_refused(ledger: Ledger) -> None:
    assert ledger.release_worker("unknown") == []
    with pytest.raises(LostLease):
        ledger.release(1)


def test_with_two_data_sets_everything_comes_back_before_it_gives_up(ledger: Ledger) -> None:
    ledger.add(DatasetSpec(**{**ledger.spec("training").to_json(), "name": "other", "max_shard_failures": 0}))
    (fails,) = ledger.lease("other", "a", 1, 1)
    ledger.lease("training", "a", 2, 1)
    with pytest.raises(ShardGivesUp, match="of other"):
        ledger.release_worker("a", failed_lease=fails.lease_id)
    assert ledger.held_by("a") == []
    assert ledger.check() == []
