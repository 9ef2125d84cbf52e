"""Parameters are spread over servers evenly, and everybody comes to the same distribution."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.partition import partition, partition_arrays

sizes = st.dictionaries(st.text(min_size=1, max_size=20), st.integers(0, 10**9), max_size=60)
servers = st.integers(1, 12)


@given(sizes, servers, st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(
    given_sizes: dict[str, int], count: int, chance: random.Random
) -> None:
    items = list(given_sizes.items())
    chance.shuffle(items)
    assert partition(dict(items), count) == partition(given_sizes, count)


@given(sizes, servers)
def test_every_name_has_one_of_the_servers(given_sizes: dict[str, int], count: int) -> None:
    owners = partition(given_sizes, count)
    assert owners.keys() == given_sizes.keys()
    assert all(0 <= owner < count for owner in owners.values())


@given(sizes, servers)
def test_no_server_has_much_more_than_its_share(given_sizes: dict[str, int], count: int) -> None:
    loads = [0] * count
    for name, owner in partition(given_sizes, count).items():
        loads[owner] += given_sizes[name]
    largest = max(given_sizes.values(), default=0)
    assert max(loads) <= sum(loads) / count + largest * (1 - 1 / count) + 1
    # Whoever has more than one parameter got the last one when it had the least.
    assert max(loads) - min(loads) <= largest


def test_equal_parameters_are_dealt_evenly() -> None:
    owners = partition({f"p{number}": 100 for number in range(12)}, 4)
    assert sorted(list(owners.values()).count(server) for server in range(4)) == [3, 3, 3, 3]


def test_empty_parameters_are_dealt_evenly_too() -> None:
    owners = partition({f"p{number}": 0 for number in range(4)}, 4)
    assert sorted(owners.values()) == [0, 1, 2, 3]


def test_the_distribution_is_fixed() -> None:
    """All processes of a job must agree, be they of different versions: this must never change."""
    owners = partition(
        {"dense/kernel": 400, "dense/bias": 40, "conv/kernel": 900, "conv/bias": 90, "scale": 4}, 2
    )
    assert owners == {"conv/kernel": 0, "dense/kernel": 1, "conv/bias": 1, "dense/bias": 1, "scale": 1}


def test_sizes_of_arrays_are_bytes() -> None:
    arrays = {"a": np.zeros(10, np.float64), "b": np.zeros(15, np.float32), "c": np.zeros(4, np.float32)}
    assert partition_arrays(arrays, 2) == partition({"a": 80, "b": 60, "c": 16}, 2)


def test_no_server_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one server"):
        partition({"a": 1}, 0)
