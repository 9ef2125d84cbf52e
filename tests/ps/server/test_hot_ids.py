"""Ids that are in most pulls are found among very many that are not, and forgotten when pulls stop asking for them."""

from __future__ import annotations

import numpy as np

from elasticdl.ps.embedding.table import Ids
from elasticdl.ps.server.call_statistics import ThreadStatistics
from elasticdl.ps.server.hot_ids import HotIds

HOT = np.array([-5, 17, 2**62], np.int64)


def pulls(count: int, ids: int, hot: Ids, chance: np.random.Generator) -> list[Ids]:
    """With each of the hot ids in every pull, among ids that hardly come twice."""
    found = []
    for _ in range(count):
        others = chance.integers(2**40, 2**41, size=ids)
        found.append(chance.permutation(np.unique(np.concatenate([hot, others]))))
    return found


def test_found_among_many() -> None:
    hot = HotIds()
    for ids in pulls(40, 20_000, HOT, np.random.default_rng(1)):
        hot.look(ids)
    top = hot.top()
    assert {one.id for one in top if one.share > 0.9} == set(HOT.tolist())
    assert all(one.share < 0.2 for one in top if one.id not in HOT)


def test_hot_ids_are_found_in_pulls_larger_than_the_sample() -> None:
    hot = HotIds()
    for ids in pulls(100, 150_000, HOT, np.random.default_rng(2)):
        hot.look(ids)
    assert {one.id for one in hot.top()[:3]} == set(HOT.tolist())


def test_nothing_is_hot_where_all_are_alike() -> None:
    chance = np.random.default_rng(3)
    hot = HotIds()
    for _ in range(100):
        hot.look(chance.permutation(100_000)[:2000])
        assert hot.top() == []


def test_hot_ids_are_found_in_few_pulls() -> None:
    hot = HotIds()
    for ids in pulls(6, 5000, HOT, np.random.default_rng(4)):
        hot.look(ids)
    assert [(one.id, one.share) for one in hot.top()] == [(number, 1.0) for number in sorted(HOT.tolist())]


def test_how_often() -> None:
    hot = HotIds()
    for number in range(100):
        ids = [1] + [2] * (number % 2 == 0) + [3] * (number % 4 == 0)
        hot.look(np.array(ids, np.int64))
    assert [(one.id, one.share) for one in hot.top()] == [(1, 1.0), (2, 0.5), (3, 0.25)]
    assert hot.top() == hot.top()


def test_not_for_ever() -> None:
    hot = HotIds()
    for _ in range(500):
        hot.look(np.array([1], np.int64))
    for _ in range(3000):
        hot.look(np.array([2], np.int64))
    first = hot.top()[0]
    assert first.id == 2
    assert first.share > 0.9
    assert all(one.share < 0.1 for one in hot.top()[1:])


def test_too_few_ids_give_no_hot_ids() -> None:
    hot = HotIds()
    assert hot.top() == []
    hot.look(np.arange(10, dtype=np.int64))
    assert hot.top() == []
    hot.look(np.empty(0, np.int64))


def test_few_pulls_are_looked_at() -> None:
    counted = ThreadStatistics()
    looks = [counted.looks() for _ in range(100_000)]
    assert any(looks[:10])
    assert sum(looks) / len(looks) < 1 / 200
