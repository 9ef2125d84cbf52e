"""Going back to the ledger of a checkpoint: what is forgotten, what stays, what counts as done again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError, LostLease

SPEC = DatasetSpec(name="training", size=40, shard_size=10, batch_size=5, epochs=4, shuffle=True, seed=1)


def new(**changes: Any) -> Ledger:
    ledger = Ledger()
    ledger.add(DatasetSpec(**{**SPEC.to_json(), **changes}))
    return ledger


def do(ledger: Ledger, shards: int, request_id: int) -> list[tuple[int, int, int]]:
    leases = ledger.lease("training", "a", shards, request_id)
    for lease in leases:
        ledger.progress(lease.lease_id, lease.end, 2, "a")
    return [(lease.epoch, lease.start, lease.end) for lease in leases]


def saved(ledger: Ledger) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(ledger.snapshot()))
    return document


def test_rollback_requeues_samples_done_since_checkpoint() -> None:
    ledger = new()
    do(ledger, 2, 1)
    (held,) = ledger.lease("training", "b", 1, 1)
    ledger.progress(held.lease_id, held.start + 5, 1, "b")
    checkpoint = saved(ledger)
    ledger.progress(held.lease_id, held.end, 2, "b")
    after = do(ledger, 1, 2) + do(ledger, 4, 3) + do(ledger, 2, 4)
    assert ledger.samples_done("training") == 100
    ledger.rollback(checkpoint)
    assert ledger.samples_done("training") == 25
    assert ledger.steps == 5
    assert [ledger.again("training", epoch) for epoch in range(4)] == [15, 40, 20, 0]
    # The rest of what was held comes first, then everything in the order it had.
    first = (0, held.start + 5, held.end)
    assert do(ledger, 2, 5) + do(ledger, 4, 6) + do(ledger, 2, 7) == [first, *after]


def test_leases_are_void_and_their_numbers_are_not_used_again() -> None:
    ledger = new()
    checkpoint = saved(ledger)
    (before,) = ledger.lease("training", "a", 1, 1)
    ledger.rollback(checkpoint)
    with pytest.raises(LostLease):
        ledger.progress(before.lease_id, before.end, 2, "a")
    (after,) = ledger.lease("training", "b", 1, 1)
    assert (after.start, after.end) == (before.start, before.end)
    assert after.lease_id > before.lease_id
    assert ledger.check() == []


def test_request_numbers_stay_but_what_they_got_is_void() -> None:
    ledger = new()
    checkpoint = saved(ledger)
    (before,) = ledger.lease("training", "a", 1, 7)
    ledger.progress(before.lease_id, before.start + 5, 1, "a")
    ledger.rollback(checkpoint)
    with pytest.raises(LedgerError, match="request 6 after 7"):
        ledger.lease("training", "a", 1, 6)
    assert ledger.lease("training", "a", 1, 7)[0].lease_id > before.lease_id


def test_rollback_without_checkpoint_resets_everything() -> None:
    ledger = new()
    do(ledger, 3, 1)
    ledger.stop("training")
    ledger.rollback(None)
    assert (ledger.samples_done("training"), ledger.again("training", 0), ledger.steps) == (0, 30, 0)
    assert ledger.leasable("training")


def test_rollback_resets_data_sets_unknown_to_the_checkpoint() -> None:
    ledger = new()
    checkpoint = saved(ledger)
    ledger.add(DatasetSpec(**{**SPEC.to_json(), "name": "evaluation"}))
    (held,) = ledger.lease("evaluation", "a", 1, 1)
    ledger.progress(held.lease_id, held.end, 0, "a")
    ledger.rollback(checkpoint)
    assert ledger.samples_done("evaluation") == 0
    assert ledger.again("evaluation", 0) == 10


def test_a_data_set_that_is_gone_stays_gone() -> None:
    ledger = new()
    ledger.add(DatasetSpec(**{**SPEC.to_json(), "name": "evaluation"}))
    checkpoint = saved(ledger)
    ledger.remove("evaluation")
    ledger.rollback(checkpoint)
    assert ledger.datasets() == ["training"]


def test_going_back_twice_counts_what_was_really_done_twice() -> None:
    ledger = new()
    checkpoint = saved(ledger)
    for request in (1, 2):
        do(ledger, 2, request)
        ledger.rollback(checkpoint)
    assert ledger.again("training", 0) == 40


def test_a_new_job_goes_on_where_the_other_one_was() -> None:
    old = new()
    do(old, 3, 10)
    old.accounts["training"].add_again(0, 7)
    old.mark_bad("training", 0, 2, "file:0", "checksum")
    (held,) = old.lease("training", "a", 1, 11)
    old.progress(held.lease_id, held.start + 5, 1, "a")
    old.stop("training")
    # Other shards, batches and seed, more epochs: the order of the epoch that was begun stays in force.
    ledger = new(epochs=6, shard_size=20, batch_size=4, seed=9)
    ledger.rollback(saved(old))
    assert (ledger.samples_done("training"), ledger.steps, ledger.again("training", 0)) == (35, 7, 7)
    assert ledger.skipped("training") == 2
    (rest,) = ledger.lease("training", "a", 9, 1)
    assert (rest.start, rest.end) == (held.start + 5, held.end)
    assert ledger.remaining("training") == 6 * 40 - 35
    ledger.add(ledger.spec("training"))
    assert ledger.check() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 41}, "made with 40 samples .* now there are 41"),
        ({"epochs": 1}, "in epoch 2 .* beyond the 1"),
    ],
)
def test_a_checkpoint_that_does_not_fit_changes_nothing(changes: dict[str, int], message: str) -> None:
    old = new()
    do(old, 4, 1)
    do(old, 1, 2)
    ledger = new(**changes)
    ledger.lease("training", "a", 1, 1)
    before = saved(ledger)
    with pytest.raises(LedgerError, match=message):
        ledger.rollback(saved(old))
    assert saved(ledger) == before


@pytest.mark.parametrize("document", [{}, {"format": 99}, {"format": 1}, {"format": 1, "next_lease": 1}])
def test_restore_of_invalid_document_is_rejected(document: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.restore(document)
