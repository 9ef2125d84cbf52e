"""A sum in parts is the sum of the whole, to the last bit."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.worker.scoring.summation import ExactSum

finite = st.floats(allow_nan=False, allow_infinity=False)


def summed(values: list[float]) -> ExactSum:
    total = ExactSum()
    total.add(np.array(values, np.float64))
    return total


@given(st.lists(finite, max_size=40))
def test_sum_is_rounded_once(values: list[float]) -> None:
    exact = sum((Fraction(value) for value in values), Fraction(0))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert summed(values).over(1) == expected


@given(st.lists(st.lists(finite, max_size=10), max_size=8))
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    whole = summed([value for part in parts for value in part])
    merged = ExactSum()
    merged.load(np.sum([summed(part).state() for part in parts], axis=0) if parts else merged.state())
    assert merged.state().tolist() == whole.state().tolist()


def test_smallest_and_largest_survive_cancellation() -> None:
    tiny, huge = 5e-324, 1.7976931348623157e308
    assert summed([huge, tiny, -huge]).over(1) == tiny
    assert summed([huge, huge]).over(2) == huge


def test_many_values_in_one_call() -> None:
    values = np.full((1 << 20) + 7, -0.1)
    total = ExactSum()
    total.add(values)
    assert total.over(values.size) == -0.1


def test_not_a_number_stays_so_through_a_merge() -> None:
    merged = ExactSum()
    merged.load(summed([1.0, math.nan]).state() + summed([2.0]).state())
    assert math.isnan(merged.over(1))
    assert summed([1.0, math.inf]).over(1) == math.inf
    assert summed([-math.inf]).over(3) == -math.inf
    assert math.isnan(summed([-math.inf, math.inf]).over(3))
    assert math.isnan(ExactSum().over(0))
