"""What `lease` gives, to whom, in which order, and what a repeated request gets."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError


def ledger_of(size: int = 100, **changes: Any) -> Ledger:
    values: dict[str, Any] = {"shard_size": 10, "batch_size": 5, "epochs": 1, "shuffle": False, "seed": 0}
    ledger = Ledger()
    ledger.add(DatasetSpec(name="training", size=size, **{**values, **changes}))
    return ledger


def ranges(leases: list[Any]) -> list[tuple[int, int]]:
    return [(lease.start, lease.end) for lease in leases]


def test_shards_come_one_after_the_other() -> None:
    ledger = ledger_of(25)
    assert ranges(ledger.lease("training", "a", 2, 1)) == [(0, 10), (10, 20)]
    assert ranges(ledger.lease("training", "b", 2, 1)) == [(20, 25)]
    assert ledger.lease("training", "c", 2, 1) == []


def test_shuffled_shards_cover_everything_once() -> None:
    ledger = ledger_of(1005, shuffle=True)
    leases = ledger.lease("training", "a", 1000, 1)
    assert sorted(ranges(leases)) == [(i, min(i + 10, 1005)) for i in range(0, 1005, 10)]
    assert ranges(leases) != sorted(ranges(leases))


def test_every_epoch_has_its_own_order() -> None:
    ledger = ledger_of(500, shuffle=True, epochs=2)
    orders = []
    for request in (1, 2):
        leases = ledger.lease("training", "a", 50, request)
        orders.append(ranges(leases))
        for lease in leases:
            ledger.progress(lease.lease_id, lease.end, 2, "a")
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_requeued_shards_are_leased_first_in_their_order() -> None:
    ledger = ledger_of()
    first, second, third = ledger.lease("training", "a", 3, 1)
    ledger.progress(second.lease_id, 15, 1, "a")
    ledger.release_worker("a")
    assert ranges(ledger.lease("training", "b", 4, 1)) == [
        (first.start, first.end),
        (15, 20),
        (third.start, third.end),
        (30, 40),
    ]


def test_the_same_request_gets_the_same_leases() -> None:
    ledger = ledger_of()
    leases = ledger.lease("training", "a", 3, 7)
    assert ledger.answered("training", "a", 7)
    assert ledger.lease("training", "a", 3, 7) == leases
    # Whatever it asks for the second time.
    assert ledger.lease("training", "a", 1, 7) == leases
    assert ledger.lease("training", "a", 1, 8) != leases


def test_a_repeated_request_gets_only_what_is_still_held() -> None:
    ledger = ledger_of()
    one, two, three = ledger.lease("training", "a", 3, 1)
    ledger.progress(one.lease_id, one.end, 2, "a")
    ledger.release(two.lease_id)
    assert ledger.lease("training", "a", 3, 1) == [three]
    ledger.progress(three.lease_id, three.end, 2, "a")
    # It has worked on the answer, so this is an old message, and its answer is not needed.
    assert not ledger.answered("training", "a", 1)
    assert ledger.lease("training", "a", 3, 1) == []


def test_a_request_whose_answer_got_lost_with_all_its_leases_gets_others() -> None:
    ledger = ledger_of()
    (lost,) = ledger.lease("training", "a", 1, 1)
    ledger.release_worker("a")
    assert ranges(ledger.lease("training", "b", 1, 1)) == [(lost.start, lost.end)]
    assert ranges(ledger.lease("training", "a", 1, 1)) == [(10, 20)]


def test_an_empty_answer_is_not_remembered() -> None:
    ledger = ledger_of(10)
    (lease,) = ledger.lease("training", "a", 1, 1)
    assert ledger.lease("training", "b", 1, 1) == []
    assert not ledger.leasable("training")
    ledger.release(lease.lease_id)
    assert ledger.leasable("training")
    assert ranges(ledger.lease("training", "b", 1, 1)) == [(0, 10)]


def test_requests_do_not_go_back() -> None:
    ledger = ledger_of()
    ledger.lease("training", "a", 1, 5)
    before = ledger.snapshot()
    with pytest.raises(LedgerError, match="request 4 after 5"):
        ledger.lease("training", "a", 1, 4)
    assert ledger.snapshot() == before


def test_a_worker_that_is_forgotten_may_count_from_the_beginning() -> None:
    ledger = ledger_of()
    ledger.lease("training", "a", 1, 5)
    assert ranges(ledger.forget_worker("a")) == [(0, 10)]
    assert ranges(ledger.lease("training", "a", 1, 1)) == [(0, 10)]


def test_nothing_is_leased_from_an_unknown_data_set() -> None:
    with pytest.raises(LedgerError, match=r"no data set evaluation .*training"):
        ledger_of().lease("evaluation", "a", 1, 1)


def test_a_data_set_is_added_once() -> None:
    ledger = ledger_of(10)
    ledger.lease("training", "a", 1, 1)
    before = ledger.snapshot()
    ledger.add(ledger.spec("training"))
    assert ledger.snapshot() == before
    with pytest.raises(LedgerError, match="size 10 and 12"):
        ledger.add(DatasetSpec(**{**ledger.spec("training").to_json(), "size": 12}))


@pytest.mark.parametrize("field", ["size", "shard_size", "batch_size", "epochs"])
def test_a_data_set_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(LedgerError, match=field):
        ledger_of(**{field: 0})


def test_a_removed_data_set_takes_its_leases_along() -> None:
    ledger = ledger_of()
    ledger.add(DatasetSpec(**{**ledger.spec("training").to_json(), "name": "evaluation"}))
    ledger.lease("evaluation", "a", 2, 9)
    (kept,) = ledger.lease("training", "a", 1, 1)
    ledger.remove("evaluation")
    assert ledger.datasets() == ["training"]
    assert ledger.held_by("a") == [kept]
    assert ledger.check() == []
    # Added again it is another one, and requests count from the beginning.
    ledger.add(DatasetSpec(**{**ledger.spec("training").to_json(), "name": "evaluation"}))
    assert ranges(ledger.lease("evaluation", "a", 1, 1)) == [(0, 10)]
