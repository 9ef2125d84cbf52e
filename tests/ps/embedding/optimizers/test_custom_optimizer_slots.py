"""An optimizer of the user's own may remember what it was given: each slot is what was put there, in whatever order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import CustomRule
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import CustomOptimizer
from elasticdl.ps.embedding.table import Table, TableSpec


class LastTwo(elasticdl.Optimizer):
    """The gradients of the last two updates, and the value before the last one."""

    slots: Mapping[str, float] = {"last": 0.0, "one_before": 0.0, "value_before": 0.0}

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        slots["one_before"] = slots["last"]
        slots["last"] = gradient
        slots["value_before"] = value
        new: Array = value - learning_rate * gradient
        return new


class Exchanging(elasticdl.Optimizer):
    """All arrays that it is given change places."""

    slots: Mapping[str, float] = {"a": 1.0, "b": 2.0}

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        a, b = slots["a"], slots["b"]
        slots["a"], slots["b"] = b, value[...]
        return a


def of_parameter(optimizer: elasticdl.Optimizer, updates: int) -> list[float]:
    """A parameter that begins as 0 after gradients of 1, 2, …; and its slots."""
    ours = CustomOptimizer(CustomRule(optimizer))
    value = np.zeros((2, 3), np.float32)
    slots = ours.slots("w", value)
    for step in range(1, updates + 1):
        ours.apply("w", value, np.full((2, 3), step, np.float32), slots, 0.5, step)
    assert all(len(np.unique(array)) == 1 for array in (value, *slots.values()))
    return [float(value.flat[0]), *(float(slots[slot].flat[0]) for slot in optimizer.slots)]


def of_row(optimizer: elasticdl.Optimizer, updates: int) -> list[float]:
    spec = TableSpec(name="t", width=3, initializer=Initializer(kind="zeros"))
    table = Table(spec, CustomOptimizer(CustomRule(optimizer)), buckets=1)
    for step in range(1, updates + 1):
        table.update([7, 8], np.full((2, 3), step, np.float32), learning_rate=0.5)
    rows = table.export(0)
    assert rows.slots is not None
    assert (rows.values == rows.values[0, 0]).all()
    assert (rows.slots == rows.slots[:1, :, :1]).all()
    return [float(rows.values[0, 0]), *rows.slots[0, :, 0].tolist()]


@pytest.mark.parametrize("of", [of_parameter, of_row])
def test_slots_keep_their_values_in_any_order(of: Any) -> None:
    assert of(LastTwo(), 3) == [-3.0, 3.0, 2.0, -1.5]


@pytest.mark.parametrize("of", [of_parameter, of_row])
def test_arrays_may_change_places(of: Any) -> None:
    assert of(Exchanging(), 1) == [1.0, 2.0, 0.0]
    assert of(Exchanging(), 3) == [0.0, 1.0, 2.0]
