"""How many shards a worker fetches ahead, and when it drops them."""

from __future__ import annotations

from elasticai_api.common.master import FetchedShard
from elasticai_api.common.supply import AHEAD_SECONDS, IDLE_SECONDS, MOST_SHARDS, Supply
from elasticai_api.proto import elasticai_api_pb2 as pb


class Program:
    """Uses shards at a pace, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.supply = Supply(clock=lambda: self.now)
        self.asked: list[int] = []
        self.given_back: list[int] = []
        self._number = 0

    def use(self, shards: int, *, seconds_each: float) -> None:
        for _ in range(shards):
            if not self.supply:
                self.asked.append(self.supply.wanted())
                self.supply.put(self._fetched(self.asked[-1]))
            assert self.supply.take() is not None
            self.now += seconds_each
            self.given_back += self.supply.clear_idle()

    def _fetched(self, count: int) -> list[FetchedShard]:
        numbers = range(self._number, self._number + count)
        self._number += count
        return [FetchedShard(task=pb.Task(task_id=number), epoch=1 + number // 10) for number in numbers]


def test_the_first_one_by_one() -> None:
    program = Program()
    program.use(50, seconds_each=0.0)
    assert set(program.asked) == {1}


def test_as_many_as_are_used_in_half_a_second() -> None:
    program = Program()
    program.use(1000, seconds_each=0.01)
    assert set(program.asked[-10:]) <= {49, 50, 51}


def test_one_by_one_where_a_shard_takes_long() -> None:
    program = Program()
    program.use(100, seconds_each=AHEAD_SECONDS * 1.5)
    assert set(program.asked) == {1}


def test_no_more_than_fits_into_an_answer() -> None:
    program = Program()
    program.use(30_000, seconds_each=0.0001)
    assert program.asked[-1] == MOST_SHARDS


def test_one_by_one_again_when_it_has_become_slow() -> None:
    program = Program()
    program.use(490, seconds_each=0.01)
    assert program.supply
    assert not program.given_back
    program.use(4, seconds_each=IDLE_SECONDS)
    assert program.given_back
    assert program.asked[-3:] == [1, 1, 1]


def test_a_short_halt_changes_nothing() -> None:
    program = Program()
    program.use(500, seconds_each=0.01)
    program.supply.clear()
    program.now += 2 * AHEAD_SECONDS
    assert program.supply.wanted() >= 49


def test_shards_are_taken_in_order_with_their_epochs() -> None:
    supply = Supply()
    shards = [FetchedShard(task=pb.Task(task_id=number), epoch=number) for number in (3, 4, 5)]
    supply.put(shards)
    assert [supply.take() for _ in shards] == shards
    assert supply.epoch == 5
    assert supply.take() is None


def test_idle_shards_are_cleared() -> None:
    now = 1000.0
    supply = Supply(clock=lambda: now)
    supply.put(FetchedShard(task=pb.Task(task_id=number)) for number in (1, 2, 3))
    supply.take()
    now += IDLE_SECONDS / 2
    assert supply.clear_idle() == []
    # Slowly used is not used up: others could do it meanwhile.
    supply.take()
    now += IDLE_SECONDS / 2
    assert supply.clear_idle() == [3]
    assert not supply
