"""The order of shards: every shard once, another order for every seed and epoch, no pattern to be seen."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.ledger.permutation import MAX_SIZE, Permutation


@pytest.mark.parametrize("size", [*range(70), 100, 255, 256, 257, 1000, 4096, 10_007])
def test_every_number_comes_once(size: int) -> None:
    assert sorted(Permutation(size, 7, 3)) == list(range(size))


@given(size=st.integers(1, MAX_SIZE), seed=st.integers(), epoch=st.integers(0, 10**6), where=st.floats(0, 1))
def test_a_number_is_found_again_in_any_size(size: int, seed: int, epoch: int, where: float) -> None:
    place = min(size - 1, int(where * size))
    order = Permutation(size, seed, epoch)
    number = order[place]
    assert 0 <= number < size
    assert order.index(number) == place
    assert order[order.index(place)] == place


def test_the_same_seed_and_epoch_give_the_same_order() -> None:
    assert list(Permutation(12, 42, 0)) == list(Permutation(12, 42, 0))
    # Written down here, because a checkpoint of an earlier version goes on in the order that it began.
    assert [Permutation(10**12, 42, 5)[i] for i in range(3)] == [276079893052, 78263155883, 435509130207]


def test_seeds_and_epochs_differ() -> None:
    orders = {tuple(Permutation(50, seed, epoch)) for seed in (-1, 0, 1, 2**70) for epoch in range(10)}
    assert len(orders) == 40


def test_without_shuffle_the_order_is_as_it_is() -> None:
    assert list(Permutation(100, 1, 1, shuffle=False)) == list(range(100))
    assert Permutation(100, 1, 1, shuffle=False).index(17) == 17


@pytest.mark.parametrize("outside", [-1, 10, 2**63])
def test_outside_of_the_size_there_is_nothing(outside: int) -> None:
    with pytest.raises(IndexError):
        Permutation(10, 0, 0)[outside]
    with pytest.raises(IndexError):
        Permutation(10, 0, 0).index(outside)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="2\\*\\*62"):
        Permutation(MAX_SIZE + 1, 0, 0)


def _deviations(counts: list[int]) -> float:
    """How far counts are from equal: chi-square, in standard deviations above its mean."""
    expected = sum(counts) / len(counts)
    freedom = len(counts) - 1
    chi_square = sum((count - expected) ** 2 / expected for count in counts)
    return float((chi_square - freedom) / (2 * freedom) ** 0.5)


# Seeds are fixed, so these pass or fail forever. Six deviations are far beyond chance.


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_orders_of_few_are_equally_likely(size: int) -> None:
    orders = Counter(tuple(Permutation(size, seed, 0)) for seed in range(5000))
    factorial = {2: 2, 3: 6, 4: 24}[size]
    assert len(orders) == factorial
    assert _deviations(list(orders.values())) < 6


@pytest.mark.parametrize("size", [64, 1024, 64 * 15_625, 2**40, 64 * 10**12, MAX_SIZE])
def test_any_number_may_stand_at_any_place(size: int) -> None:
    for place in (0, 1, size // 2, size - 1):
        counts = [0] * 64
        for epoch in range(3000):
            counts[Permutation(size, 1, epoch)[place] * 64 // size] += 1
        assert _deviations(counts) < 6


@pytest.mark.parametrize("size", [2**16, 10**6, 2**31 - 1, 10**12])
def test_neighbours_do_not_stay_together(size: int) -> None:
    order = Permutation(size, 5, 5)
    numbers = [order[place] for place in range(10_000)]
    pairs = [0] * 64
    low_bits = [0] * 64
    for one, other in pairwise(numbers):
        pairs[(one * 8 // size) * 8 + other * 8 // size] += 1
        low_bits[(one % 8) * 8 + other % 8] += 1
    assert _deviations(pairs) < 6
    assert _deviations(low_bits) < 6
