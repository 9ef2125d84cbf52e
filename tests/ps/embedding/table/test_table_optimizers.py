"""Rows are updated as the framework's optimizer would update a parameter of its own, which counts its own steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import RULES, make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2

ROWS, WIDTH, STEPS = 6, 5, 120
IDS = np.array([3, -7, 1 << 40, 0, -(1 << 62), 12345], np.int64)
VARIANTS: list[tuple[str, str, dict[str, float]]] = [
    *((flavor, name, {}) for flavor, rules in RULES.items() for name in rules),
    ("keras", "sgd", {"momentum": 0.9, "nesterov": 1}),
    ("keras", "adam", {"amsgrad": 1}),
    ("keras", "rmsprop", {"momentum": 0.9, "centered": 1}),
    ("keras", "ftrl", {"l1": 0.05, "l2": 0.02, "learning_rate_power": -0.7}),
    ("torch", "sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("torch", "adagrad", {"lr_decay": 0.01, "weight_decay": 0.1}),
    ("torch", "adam", {"amsgrad": 1, "weight_decay": 0.02}),
    ("torch", "rmsprop", {"momentum": 0.9, "centered": 1}),
]


def config(flavor: str, name: str, options: dict[str, float]) -> ps_pb2.OptimizerConfig:
    return ps_pb2.OptimizerConfig(name=name, flavor=flavor, options=options)


def new_table(flavor: str, name: str, options: dict[str, float]) -> Table:
    spec = TableSpec(name="t", width=WIDTH, initializer=Initializer(kind="normal", options={"stddev": 1.0}))
    return Table(spec, make_optimizer(config(flavor, name, options)), buckets=4)


def batches() -> Iterator[tuple[float, list[int], Array, dict[int, Array]]]:
    """(learning rate, row numbers with some twice, their gradients, the sum of each row's)."""
    chance = np.random.default_rng(5)
    for step in range(STEPS):
        rows = [int(row) for row in chance.permutation(ROWS)[: chance.integers(1, ROWS + 1)]]
        rows += [int(row) for row in chance.choice(rows, 2)]
        size = 10.0 ** chance.uniform(-3, 1)
        gradients = np.asarray(chance.normal(size=(len(rows), WIDTH)) * size, np.float32)
        sums: dict[int, Array] = {}
        for row, gradient in zip(rows, gradients, strict=True):
            sums[row] = sums[row] + gradient if row in sums else gradient
        yield 0.01 / (1 + step / 100), rows, gradients, sums


@pytest.mark.parametrize(("flavor", "name", "options"), VARIANTS)
def test_a_row_is_a_parameter_of_its_own(flavor: str, name: str, options: dict[str, float]) -> None:
    """The dense form is held against the frameworks elsewhere."""
    table = new_table(flavor, name, options)
    optimizer = make_optimizer(config(flavor, name, options))
    values = list(table.gather(IDS))
    slots = [optimizer.slots("row", value) for value in values]
    steps = [0] * ROWS
    for learning_rate, rows, gradients, sums in batches():
        table.update(IDS[rows], gradients, learning_rate=learning_rate)
        for row, gradient in sums.items():
            steps[row] += 1
            optimizer.apply("row", values[row], gradient, slots[row], learning_rate, steps[row])
    np.testing.assert_array_equal(table.gather(IDS), np.array(values))
    assert len(set(steps)) > 1


@pytest.mark.parametrize(
    "name", ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam"]
)
def test_rows_against_pytorch(name: str) -> None:
    import torch

    table = new_table("torch", name.lower(), {})
    parameters = [torch.nn.Parameter(torch.tensor(value)) for value in table.gather(IDS)]
    theirs = getattr(torch.optim, name)(parameters, lr=0.01)
    for learning_rate, rows, gradients, sums in batches():
        table.update(IDS[rows], gradients, learning_rate=learning_rate)
        theirs.param_groups[0]["lr"] = learning_rate
        for row, parameter in enumerate(parameters):
            parameter.grad = torch.tensor(sums[row]) if row in sums else None
        theirs.step()
    found = np.array([parameter.detach().numpy() for parameter in parameters])
    np.testing.assert_allclose(table.gather(IDS), found, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("flavor", ["keras", "torch"])
def test_gradients_are_scaled_and_clipped(flavor: str) -> None:
    table = new_table(flavor, "sgd", {})
    before = table.gather(IDS)
    gradients = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    table.update(IDS, gradients, learning_rate=1.0, scale=0.5, clip_norm=4.0, clip_value=2.0)
    halves = gradients * 0.5
    norms = np.linalg.norm(halves, axis=1, keepdims=True)
    expected = np.clip(halves * np.minimum(1.0, 4.0 / np.maximum(norms, 1e-9)), -2.0, 2.0)
    np.testing.assert_allclose(before - table.gather(IDS), expected, rtol=1e-4, atol=1e-5)


def test_a_whole_parameter_is_clipped_by_its_whole_norm() -> None:
    rule = make_optimizer(config("keras", "sgd", {})).rule
    dtypes: tuple[type[np.floating[Any]], ...] = (np.float16, np.float32, np.float64)
    for dtype in dtypes:
        value, gradient = np.zeros(5000, dtype), np.ones(5000, dtype)
        rule.apply(value, gradient, [], 1.0, 1, clip_norm=1.0)
        np.testing.assert_allclose(value, np.full(5000, -1 / np.sqrt(5000)), rtol=1e-3)
