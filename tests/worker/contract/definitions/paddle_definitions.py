"""The definitions of the contract suite in Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

import elasticdl
import elasticdl.paddle
from elasticdl.worker.paddle import callbacks
from tests.worker.contract.definitions.plain_definitions import (
    Callback,
    columns_feed,
    eval_metrics_fn,
    factor,
    feed,
    filtering_feed,
    ids_feed,
    loss,
    misfit,
    records_feed,
    table_feed,
)

__all__ = [
    "Callback",
    "columns_feed",
    "eval_metrics_fn",
    "factor",
    "feed",
    "filtering_feed",
    "ids_feed",
    "loss",
    "misfit",
    "records_feed",
    "table_feed",
]

# What a learning rate may differ by from the same one computed in another way.
RATE_TOLERANCE = 1e-12


def seed(number: int) -> None:
    paddle.seed(number)


def dense() -> Any:
    paddle.seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def normalized() -> Any:
    paddle.seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Linear(8, 1))


class Table(nn.Layer):
    def __init__(self, name: str = "rows") -> None:
        super().__init__()
        self.rows = elasticdl.paddle.Embedding(4, initializer="normal", name=name)
        self.out = nn.Linear(16, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.out(paddle.concat([self.rows(ids).flatten(1), numbers], axis=1))


def table(name: str = "rows") -> Any:
    paddle.seed(1)
    return Table(name)


class TwoTables(Table):
    def __init__(self) -> None:
        super().__init__()
        self.others = elasticdl.paddle.Embedding(4, name="rows")

    def forward(self, numbers: Any, ids: Any) -> Any:
        return super().forward(numbers, ids) + self.others(ids).sum((1, 2)).unsqueeze(1)


def two_tables_of_one_name() -> Any:
    return TwoTables()


class Freezable(nn.Layer):
    def __init__(self, body: Any, looks_up: bool) -> None:
        super().__init__()
        self.body, self.looks_up = body, looks_up
        self.head = nn.Linear(4, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.head(paddle.tanh(self.body(ids).sum(1) if self.looks_up else self.body(numbers)))


def freezable(kind: str) -> Any:
    paddle.seed(1)
    if kind == "table":
        initializer = {"kind": "normal", "stddev": 0.5}
        return Freezable(elasticdl.paddle.Embedding(4, initializer=initializer, name="body"), True)
    return Freezable(nn.Linear(4, 4), False)


def set_trained(model: Any, trained: bool) -> None:
    for parameter in model.body.parameters():
        parameter.stop_gradient = not trained


def embedding(width: int, **options: Any) -> Any:
    return elasticdl.paddle.Embedding(width, **options)


def look_up(layer: Any, ids: Any, *, training: bool = False) -> Any:
    with paddle.set_grad_enabled(training):
        return layer(paddle.to_tensor(ids)).numpy()


def own_rows(layer: Any) -> int:
    return len(layer.own().tables)


def early_stopping(monitor: str, epochs: int) -> Any:
    return callbacks.EarlyStopping(monitor, patience=epochs - 1)


def rate_by_epoch(function: Any) -> Any:
    return callbacks.LearningRateScheduler(function)


def plateau(patience: int, factor: float = 0.5, least: float = 0.0) -> Any:
    return callbacks.ReduceLROnPlateau("val_loss", patience=patience, factor=factor, min_lr=least)


class OwnAdagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / (np.sqrt(slots["sum"]) + 1e-6)


def optimizer(name: str) -> Any:
    made = paddle.optimizer

    def norm() -> Any:
        return nn.ClipGradByGlobalNorm(0.1)

    def halving(parameters: Any) -> Any:
        return made.SGD(made.lr.StepDecay(0.1, step_size=3, gamma=0.5), parameters)

    return {
        "sgd": lambda parameters: made.SGD(0.05, parameters),
        "momentum": lambda parameters: made.Momentum(0.02, 0.9, parameters, use_nesterov=True),
        "adagrad": lambda parameters: made.Adagrad(0.1, parameters=parameters),
        "adam": lambda parameters: made.Adam(0.01, parameters=parameters),
        "adamw": lambda parameters: made.AdamW(0.01, weight_decay=0.01, parameters=parameters),
        "rmsprop": lambda parameters: made.RMSProp(0.01, parameters=parameters),
        "adadelta": lambda parameters: made.Adadelta(1.0, parameters=parameters),
        "adamax": lambda parameters: made.Adamax(0.01, parameters=parameters),
        "decayed": lambda parameters: made.Momentum(0.1, 0.9, parameters, weight_decay=0.01),
        "clipped": lambda parameters: made.SGD(0.05, parameters, grad_clip=norm()),
        "halving": halving,
        "own adagrad": lambda parameters: OwnAdagrad(0.1),
    }[name]


def exported_outputs(path: Path, features: Any) -> Any:
    program = paddle.jit.load(str(path / "model"))
    program.eval()
    given = features.values() if isinstance(features, dict) else [features]
    return np.asarray(program(*map(paddle.to_tensor, given)))
