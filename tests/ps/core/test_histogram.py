"""Distributions: fixed classes that are added and subtracted without loss, quantiles that are right to an eighth."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.core.histogram import Distribution, class_of, middle_of, quantile

NUMBERS = st.lists(st.integers(0, 10**9), min_size=1, max_size=200)


def test_small_numbers_have_classes_of_their_own() -> None:
    assert [class_of(number) for number in range(8)] == list(range(8))
    assert [middle_of(class_of(number)) for number in range(8)] == list(range(8))


@given(st.integers(0, 2**39))
def test_the_middle_of_a_class_is_near_its_numbers(number: int) -> None:
    assert abs(middle_of(class_of(number)) - number) <= number / 8


@given(st.integers(0, 2**39))
def test_classes_are_in_order(number: int) -> None:
    assert 0 <= class_of(number + 1) - class_of(number) <= 1


def test_number_beyond_all_classes_counts_as_the_largest() -> None:
    taken = Distribution()
    taken.add(10**15)
    assert taken.largest == taken.sum == 2**40 - 1
    assert sum(taken.counts) == 1


@given(NUMBERS, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_quantile_is_within_an_eighth(numbers: list[int], share: float) -> None:
    taken = Distribution()
    for number in numbers:
        taken.add(number)
    exact = sorted(numbers)[math.ceil(share * len(numbers)) - 1]
    found = quantile(taken.found(), share)
    assert found == pytest.approx(exact, rel=1 / 8, abs=0.5)


def test_no_numbers_no_quantile() -> None:
    assert quantile({}, 0.5) is None


@given(NUMBERS, NUMBERS)
def test_merged_is_as_if_it_had_been_one(first: list[int], second: list[int]) -> None:
    one, other, both = Distribution(), Distribution(), Distribution()
    for number in first:
        one.add(number)
        both.add(number)
    for number in second:
        other.add(number)
        both.add(number)
    one.merge(other)
    assert (one.counts, one.sum, one.largest) == (both.counts, both.sum, both.largest)
