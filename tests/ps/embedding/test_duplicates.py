"""The different ids of a batch, and sums over those that are the same, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import UserError
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.table import buckets_of, convert
from elasticdl.ps.embedding.unique_ids import bucket_starts, sum_by, take_rows, unique

IDS = st.lists(st.one_of(st.integers(-5, 5), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=200)


@given(IDS)
def test_each_id_once_and_the_way_back(ids: list[int]) -> None:
    batch = np.array(ids, np.int64)
    found, inverse = unique(batch)
    np.testing.assert_array_equal(np.sort(found), np.unique(batch))
    np.testing.assert_array_equal(found[inverse], batch)


@given(IDS)
def test_ids_of_a_bucket_are_side_by_side(ids: list[int]) -> None:
    found, _ = unique(ids)
    starts = bucket_starts(found)
    assert starts is not None
    assert len(starts) == BUCKETS + 1
    of_ids = buckets_of(found, BUCKETS)
    for bucket in range(BUCKETS):
        inside = of_ids[starts[bucket] : starts[bucket + 1]]
        assert np.all(inside == bucket)
    assert starts[0] == 0
    assert starts[-1] == len(found)
    if len(set(of_ids.tolist())) > 1:
        assert bucket_starts(found[::-1].copy()) is None


def test_many_ids_of_which_few_are_frequent() -> None:
    batch = np.random.default_rng(7).zipf(1.1, 300_000).astype(np.int64).reshape(-1, 100)
    found, inverse = unique(batch)
    np.testing.assert_array_equal(np.sort(found), np.unique(batch))
    np.testing.assert_array_equal(found[inverse], batch.reshape(-1))


@pytest.mark.parametrize("width", [1, 3, 8, 16, 33])
def test_sums_are_those_of_numpy_to_the_bit(width: int) -> None:
    chance = np.random.default_rng(width)
    inverse = chance.integers(0, 50, 1000)
    gradients = chance.normal(size=(1000, width)).astype(np.float32)
    expected = np.zeros((50, width), np.float32)
    np.add.at(expected, inverse, gradients)
    np.testing.assert_array_equal(sum_by(inverse, gradients, 50), expected)
    kept = np.full((50, width), np.nan, np.float32)
    assert sum_by(inverse, gradients, 50, out=kept) is kept
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize("width", [1, 3, 8, 16, 32, 33])
def test_rows_are_taken_as_numpy_takes_them(width: int) -> None:
    chance = np.random.default_rng(width)
    inverse = chance.integers(0, 50, 1000)
    rows = chance.normal(size=(50, width)).astype(np.float32)
    out = np.full((1000, width), np.nan, np.float32)
    take_rows(rows, inverse, out=out)
    np.testing.assert_array_equal(out, rows[inverse])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_narrow_gradients_are_wide(dtype: str) -> None:
    chance = np.random.default_rng(3)
    inverse = chance.integers(0, 5, 100)
    narrow = convert(chance.normal(size=(100, 4)).astype(np.float32), dtype)
    wide = convert(narrow, "float32", source=dtype)
    np.testing.assert_array_equal(sum_by(inverse, narrow, 5), sum_by(inverse, wide, 5))


def test_no_ids_at_all() -> None:
    found, inverse = unique([])
    assert len(found) == len(inverse) == 0
    assert sum_by(inverse, np.empty((0, 4), np.float32), 0).shape == (0, 4)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UserError, match="outside of int64"):
        unique([1 << 63])
    with pytest.raises(IndexError):
        sum_by(np.array([0, 2]), np.ones((2, 3), np.float32), 2)
    with pytest.raises(IndexError):
        sum_by(np.array([0, -1]), np.ones((2, 3), np.float32), 2)
    with pytest.raises(ValueError, match="for each number"):
        sum_by(np.array([0]), np.ones((2, 3), np.float32), 2)
    rows, out = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    for bad in (-1, 2, -(1 << 63), (1 << 63) - 1):
        with pytest.raises(IndexError):
            take_rows(rows, np.array([0, bad]), out=out)
    with pytest.raises(ValueError, match="for each number"):
        take_rows(rows, np.array([0]), out=out)
