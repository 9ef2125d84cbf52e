"""Counting batches on the shards that are held: in order, over borders, out of order, and not on lost ones."""

from __future__ import annotations

import pytest

from elasticai_api.common.account import HeldShards
from elasticai_api.common.master import ShardProgress
from elasticai_api.errors import ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb


def _task(number: int, start: int, end: int, indices: list[int] | None = None) -> pb.Task:
    return pb.Task(task_id=number, shard=pb.Shard(start=start, end=end, indices=indices), type=pb.TRAINING)


def _reports(progress: list[ShardProgress]) -> list[tuple[int, int, int, bool]]:
    return [(p.task_id, p.position, p.batches, p.ended) for p in progress]


@pytest.fixture
def held() -> HeldShards:
    shards = HeldShards()
    shards.add(_task(1, 100, 110))
    shards.add(_task(2, 50, 60))
    return shards


def test_in_the_order_of_fetching(held: HeldShards) -> None:
    assert _reports(held.done(4)) == [(1, 104, 1, False)]
    assert _reports(held.done(4)) == [(1, 108, 2, False)]


def test_over_the_border_of_two_shards(held: HeldShards) -> None:
    held.done(8)
    assert _reports(held.done(8)) == [(1, 110, 2, True), (2, 56, 0, False)]
    assert _reports(held.done(4)) == [(2, 60, 1, True)]
    assert len(held) == 0


def test_more_than_there_is(held: HeldShards) -> None:
    assert _reports(held.done(100)) == [(1, 110, 1, True), (2, 60, 0, True)]
    assert held.done(5) == []
    held.add(_task(3, 0, 10))
    assert _reports(held.done(1)) == [(3, 1, 1, False)]


def test_progress_is_counted_for_named_shards(held: HeldShards) -> None:
    assert _reports(held.done(10, [2])) == [(2, 60, 1, True)]
    assert _reports(held.done(3)) == [(1, 103, 1, False)]
    with pytest.raises(ShardError, match=r"\[2\] are not held by this process: \[1\] are"):
        held.done(1, [2])


def test_shuffled_records_count_as_a_whole() -> None:
    held = HeldShards()
    held.add(_task(1, 0, 6, [5, 3, 1, 0, 2, 4]))
    assert held.done(4) == []
    assert _reports(held.done(2)) == [(1, 6, 2, True)]


def test_lost_shards_are_counted_and_not_reported(held: HeldShards) -> None:
    held.lose([1])
    assert held.done(4) == []
    assert _reports(held.done(8)) == [(2, 52, 0, False)]


def test_failed_shards_are_counted_and_not_reported(held: HeldShards) -> None:
    held.done(4)
    assert held.failed(4) == [1]
    assert _reports(held.done(4)) == [(2, 52, 0, False)]


def test_a_failed_batch_of_two_shards(held: HeldShards) -> None:
    held.done(8)
    assert held.failed(4) == [1, 2]
    assert held.done(8) == []
    assert len(held) == 0


def test_out_of_order_counts_so_much_later() -> None:
    held = HeldShards(out_of_order=6)
    held.add(_task(1, 0, 10))
    held.add(_task(2, 10, 20))
    assert held.done(4) == []
    assert _reports(held.done(4)) == [(1, 2, 1, False)]
    assert _reports(held.done(4)) == [(1, 6, 2, False)]
    assert _reports(held.done(4)) == [(1, 10, 3, True)]
    # All that was fetched is done: no order matters any more.
    assert _reports(held.done(4)) == [(2, 20, 1, True)]


def test_clear_returns_held_leases(held: HeldShards) -> None:
    held.lose([1])
    assert held.clear() == [2]
    assert held.first() is None
