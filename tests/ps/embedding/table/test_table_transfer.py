"""Rows and gradients may travel as float16 or bfloat16, rounded as usual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps._kernels import count_not_finite
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec, convert
from elasticdl.wire import ps_pb2

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16)


def brain(array: Array) -> Array:
    """Rounded to bfloat16, in whole-number arithmetic."""
    bits = array.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def test_every_number_of_both_comes_back() -> None:
    halves = EVERY_HALF.view(np.float16)
    wide = convert(halves, "float32", source="float16")
    np.testing.assert_array_equal(wide, halves.astype(np.float32))
    back = convert(wide, "float16")
    finite = ~np.isnan(halves)
    np.testing.assert_array_equal(back.view(np.uint16)[finite], EVERY_HALF[finite])
    assert np.all(np.isnan(back[~finite]))
    wide = convert(EVERY_HALF, "float32", source="bfloat16")
    finite = ~np.isnan(wide)
    np.testing.assert_array_equal(convert(wide, "bfloat16")[finite], EVERY_HALF[finite])
    assert np.all(np.isnan(convert(convert(wide, "bfloat16"), "float32", source="bfloat16")[~finite]))


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=200))
def test_float16_rounding_equals_numpy(bits: list[int]) -> None:
    numbers = np.array(bits, np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    np.testing.assert_array_equal(convert(numbers, "float16"), expected)
    np.testing.assert_array_equal(convert(numbers, "bfloat16"), brain(numbers))
    assert count_not_finite(numbers) == np.sum(~np.isfinite(numbers))
    assert count_not_finite(expected) == np.sum(~np.isfinite(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_table_gives_and_takes_them(dtype: str) -> None:
    spec = TableSpec(name="t", width=5, initializer=Initializer(kind="normal", options={"stddev": 1.0}))
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="adam", flavor="torch"))
    ids = np.array([4, 4, -1, 9, 4], np.int64)
    narrow, wide = Table(spec, optimizer, buckets=3), Table(spec, optimizer, buckets=3)
    gradients = convert(np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32), dtype)
    np.testing.assert_array_equal(narrow.gather(ids, dtype=dtype), convert(wide.gather(ids), dtype))
    narrow.update(ids, gradients, learning_rate=0.1)
    wide.update(ids, convert(gradients, "float32", source=dtype), learning_rate=0.1)
    np.testing.assert_array_equal(narrow.gather(ids), wide.gather(ids))
