"""Updates happen in place, whatever the size of the parameter, and touch nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.embedding.optimizers import RULES, make_optimizer
from elasticdl.wire import ps_pb2

# Numbers that are prepared at once, if something is done to gradients first.
BLOCK = 1024
ALL = [(flavor, name) for flavor, rules in RULES.items() for name in rules]


@pytest.mark.parametrize(("flavor", "name"), ALL)
@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 17])
def test_blocks_do_not_show(flavor: str, name: str, size: int) -> None:
    """A parameter of many blocks gets what its parts would get by themselves."""
    optimizer = make_optimizer(
        ps_pb2.OptimizerConfig(name=name, flavor=flavor, options={"weight_decay": 0.01})
    )
    chance = np.random.default_rng(3)
    whole = chance.normal(size=size).astype(np.float32)
    parts = np.array_split(whole.copy(), 7)
    whole_slots = optimizer.slots("x", whole)
    part_slots = [optimizer.slots("x", part) for part in parts]
    for step in (1, 2, 3):
        gradient = chance.normal(size=size).astype(np.float32)
        gradient.flags.writeable = False
        optimizer.apply("x", whole, gradient, whole_slots, 0.1, step)
        for part, slots, piece in zip(parts, part_slots, np.array_split(gradient, 7), strict=True):
            optimizer.apply("x", part, piece, slots, 0.1, step)
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize(("flavor", "name"), ALL)
def test_every_dtype_keeps_its_own(flavor: str, name: str) -> None:
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor))
    for dtype in (np.float16, np.float32, np.float64):
        value = np.ones((3, 2), dtype)
        slots = optimizer.slots("x", value)
        optimizer.apply("x", value, np.full((3, 2), 0.5, np.float32), slots, 0.1, 1)
        assert value.dtype == dtype
        assert all(slot.dtype == dtype for key, slot in slots.items() if key != "step")
        assert np.all(np.isfinite(value))
        # A first step of Adadelta is less than two numbers of float16 are apart.
        assert dtype == np.float16 or np.all(value != 1)


def test_whole_numbers_cannot_be_trained() -> None:
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="keras"))
    value = np.ones(3, np.int64)
    with pytest.raises(ValueError, match="counts is of int64; only floating-point"):
        optimizer.apply("counts", value, np.ones(3, np.float32), {}, 0.1, 1)


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    for flavor, name in ALL:
        optimizer = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor))
        value = np.array([1.0, -2.0], np.float32)
        optimizer.apply("x", value, np.array([3.0, 4.0], np.float32), optimizer.slots("x", value), 0.0, 1)
        np.testing.assert_array_equal(value, [1.0, -2.0])
