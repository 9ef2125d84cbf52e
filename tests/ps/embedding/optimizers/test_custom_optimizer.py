"""An optimizer of the user's own, in NumPy: as exact as those that are compiled, for whole parameters and for rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import Optimizer, make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2


class NumpyAdagrad(elasticdl.Optimizer):
    """As Keras has it."""

    slots: Mapping[str, float] = {"accumulator": 0.1}

    def __init__(self, learning_rate: float = 0.01, epsilon: float = 1e-7) -> None:
        super().__init__(learning_rate)
        self.epsilon = np.float32(epsilon)

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        slots["accumulator"] = slots["accumulator"] + gradient * gradient
        value -= (gradient * np.float32(learning_rate)) / np.sqrt(slots["accumulator"] + self.epsilon)
        return value


class NumpyAdam(elasticdl.Optimizer):
    """As PyTorch has it, changing what it is given."""

    slots: Mapping[str, float] = {"m": 0.0, "v": 0.0}

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        slots["m"] += 0.1 * (gradient - slots["m"])
        slots["v"] *= 0.999
        slots["v"] += 0.001 * gradient * gradient
        root = np.sqrt(slots["v"]) / np.sqrt(1 - 0.999**step)
        value -= learning_rate / (1 - 0.9**step) * slots["m"] / (root + 1e-8)
        gradient[...] = np.nan
        return value


def built_in(name: str, flavor: str) -> Optimizer:
    return make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor))


def test_whole_parameters(run: Any, assert_same_values: Callable[..., None]) -> None:
    ours = make_optimizer(to_config(NumpyAdagrad()))
    values = {name: value.copy() for name, value in run.initial.items()}
    slots = {name: ours.slots(name, value) for name, value in values.items()}
    for step, learning_rate, gradients in run.steps():
        for name, gradient in gradients.items():
            before = gradient.copy()
            ours.apply(name, values[name], gradient, slots[name], learning_rate, step)
            np.testing.assert_array_equal(gradient, before)
    theirs = run.ours("adagrad", "keras", {})
    for name, value in values.items():
        np.testing.assert_array_equal(value, theirs[name])


@pytest.mark.parametrize(
    ("custom", "name", "flavor"), [(NumpyAdagrad, "adagrad", "keras"), (NumpyAdam, "adam", "torch")]
)
@pytest.mark.parametrize("admit_after", [1, 3])
def test_custom_optimizer_updates_rows_like_compiled_one(
    custom: type[elasticdl.Optimizer], name: str, flavor: str, admit_after: int
) -> None:
    spec = TableSpec(
        name="t",
        width=5,
        initializer=Initializer(kind="normal", options={"stddev": 1.0}),
        admit_after=admit_after,
        expire_after=1_000,
    )
    ours = Table(spec, make_optimizer(to_config(custom())), buckets=4)
    theirs = Table(spec, built_in(name, flavor), buckets=4)
    chance = np.random.default_rng(3)
    for step in range(1, 150):
        # Some of them come twice.
        ids = chance.integers(-50, 50, 30)
        gradients = chance.normal(size=(30, 5)).astype(np.float16 if step % 2 else np.float32)
        outcomes = [
            table.update(ids, gradients, learning_rate=0.01, step=step, scale=0.5, clip_value=1.0)
            for table in (ours, theirs)
        ]
        assert [(one.found, one.created, one.waiting) for one in outcomes[:1]] == [
            (one.found, one.created, one.waiting) for one in outcomes[1:]
        ]
    for bucket in range(4):
        left, right = ours.export(bucket), theirs.export(bucket)
        order, other = np.argsort(left.ids), np.argsort(right.ids)
        np.testing.assert_array_equal(left.ids[order], right.ids[other])
        np.testing.assert_allclose(left.values[order], right.values[other], rtol=2e-5, atol=1e-5)
        assert left.slots is not None
        assert right.slots is not None
        np.testing.assert_allclose(left.slots[order], right.slots[other], rtol=2e-5, atol=1e-5)
        np.testing.assert_array_equal(left.seen[order], right.seen[other])  # type: ignore[index]


def test_rows_to_the_bit_where_numpy_does_the_same() -> None:
    spec = TableSpec(name="t", width=3)
    ours = Table(spec, make_optimizer(to_config(NumpyAdagrad())), buckets=4)
    theirs = Table(spec, built_in("adagrad", "keras"), buckets=4)
    chance = np.random.default_rng(4)
    for _ in range(200):
        ids = np.unique(chance.integers(0, 40, 20))
        gradients = chance.normal(size=(len(ids), 3)).astype(np.float32)
        for table in (ours, theirs):
            table.update(ids, gradients, learning_rate=0.1, unique=True)
    np.testing.assert_array_equal(ours.gather(np.arange(40)), theirs.gather(np.arange(40)))


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    table = Table(TableSpec(name="t", width=1), make_optimizer(to_config(NumpyAdagrad())), buckets=4)
    with pytest.raises(UserError, match="not finite"):
        table.update([1, 2], np.array([[1.0], [np.inf]], np.float32), learning_rate=0.1)
    assert len(table) == 0
