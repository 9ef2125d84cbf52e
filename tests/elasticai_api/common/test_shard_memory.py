"""The shards that a worker remembers for a master that lost its journal."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from elasticai_api.common.shard_memory import KEPT_SECONDS, ShardMemory


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(clock: Clock) -> ShardMemory:
    memory = ShardMemory(clock)
    for number in (1, 2):
        memory.add(number, dataset=f"d{number}", epoch=1, start=10 * number, end=10 * number + 10)
    return memory


def ids(memory: ShardMemory) -> list[int]:
    return [shard.shard_id for shard in memory.shards()]


def test_new_shard_is_held_with_nothing_done(memory: ShardMemory) -> None:
    first, _ = memory.shards()
    assert (first.start, first.position, first.end, first.batches) == (10, 10, 20, 0)
    assert first.is_held


def test_late_progress_report_does_not_move_position_back(memory: ShardMemory) -> None:
    memory.advance(1, position=16, batches=3)
    memory.advance(1, position=12, batches=1)
    assert (memory.shards()[0].position, memory.shards()[0].batches) == (16, 3)


def test_truncated_shard_ends_earlier_and_stays_so(memory: ShardMemory) -> None:
    memory.truncate(1, 15)
    memory.truncate(1, 18)
    memory.advance(1, position=20, batches=1)
    assert (memory.shards()[0].position, memory.shards()[0].end) == (15, 15)


def test_ended_shard_expires_after_its_time_and_only_when_the_master_answers(
    memory: ShardMemory, clock: Clock
) -> None:
    memory.end([1])
    assert [shard.is_held for shard in memory.shards()] == [False, True]
    clock.now = KEPT_SECONDS
    memory.expire()
    assert ids(memory) == [1, 2]
    clock.now = KEPT_SECONDS + 1
    assert ids(memory) == [1, 2]
    memory.expire()
    assert ids(memory) == [2]


def test_shard_ended_twice_expires_by_the_first_end(memory: ShardMemory, clock: Clock) -> None:
    memory.end([1])
    clock.now = 30.0
    memory.end([1])
    clock.now = KEPT_SECONDS + 1
    memory.expire()
    assert ids(memory) == [2]


def test_lost_shards_and_reset_data_sets_are_dropped(memory: ShardMemory) -> None:
    memory.drop([1, 99])
    assert ids(memory) == [2]
    memory.drop_dataset("d2")
    assert ids(memory) == []


def test_report_is_not_changed_by_later_progress(memory: ShardMemory) -> None:
    report = memory.shards()
    memory.advance(1, position=20, batches=9)
    assert report[0].position == 10
