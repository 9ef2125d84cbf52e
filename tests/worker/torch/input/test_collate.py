"""Batches are what `default_collate` of PyTorch makes of the samples."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from elasticdl.errors import UserError
from elasticdl.worker.torch.input.collate import collate, describe

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "samples",
    [
        [np.arange(6, dtype=np.float32).reshape(2, 3) + i for i in range(4)],
        [np.array([i, 9 - i], np.uint8) for i in range(3)],
        [np.array(i, np.int32) for i in range(3)],
        [np.float32(i) for i in range(3)],
        [np.int16(i) for i in range(3)],
        [1, 2, 3],
        [1.5, 2.5],
        [True, False],
        [torch.ones(2, 3) * i for i in range(3)],
        [torch.tensor(i) for i in range(3)],
        [{"a": np.ones(2) * i, "b": i} for i in range(3)],
        [(np.ones(2) * i, (i, {"c": float(i)})) for i in range(3)],
        [Point(np.ones(2) * i, i) for i in range(3)],
        [np.ones((2, 0), np.float32)] * 3,
        [np.asfortranarray(np.arange(6.0).reshape(2, 3))] * 2,
    ],
)
def test_same_values_and_types_as_pytorch(samples: list[Any]) -> None:
    ours, theirs = collate(samples), default_collate(samples)
    flat = torch.utils._pytree.tree_leaves
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)


def test_structures_stay_what_they_are() -> None:
    batch = collate([({"a": 1}, [2, 3], Point(4, 5), "six")] * 2)
    assert isinstance(batch, tuple)
    assert isinstance(batch[1], list)
    assert isinstance(batch[2], Point)
    assert batch[3] == ["six", "six"]


def test_a_batch_is_memory_of_its_own() -> None:
    read_only = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32)
    batch = collate([read_only])
    batch += 1
    assert read_only.tolist() == [0, 1, 2, 3]


def test_numbers_in_the_other_byte_order() -> None:
    assert collate([np.array([1, 2], ">i4"), np.array([3, 4], ">i4")]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(np.ones(3), 0), (np.ones(4), 0)], r"the sample\[0\] is float64\[3\], float64\[4\]"),
        # The joined lengths are those of three equal samples.
        ([(np.ones(3), 0), (np.ones(2), 0), (np.ones(4), 0)], r"the sample\[0\] is"),
        ([{"a": 1}, {"b": 1}], "keys differ"),
        ([(1, 2), (1, 2, 3)], "the sample is"),
        ([np.array(["x"]), np.array(["y"])], "cannot be put into one batch"),
        ([object(), object()], "cannot be put into one batch"),
        ([(1, None), (1, None)], r"the sample\[1\] is NoneType"),
    ],
)
def test_samples_that_do_not_fit_together(samples: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        collate(samples)


def test_description_names_types_and_shapes() -> None:
    values = {"x": torch.zeros(2, 3), "y": (np.zeros(4, np.int8), 1.0)}
    assert describe(values) == "{x: float32[2, 3], y: (int8[4], float)}"
