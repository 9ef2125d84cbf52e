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
from elasticdl import metrics
from elasticdl.data.example import decode_example


def dense() -> Any:
    paddle.seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def normalized() -> Any:
    paddle.seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Linear(8, 1))


class Table(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.paddle.Embedding(4, initializer="normal", name="rows")
        self.out = nn.Linear(16, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.out(paddle.concat([self.rows(ids).flatten(1), numbers], axis=1))


def table() -> Any:
    paddle.seed(1)
    return Table()


def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for example in map(decode_example, dataset):
        yield example["numbers"], example["label"]


def table_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for example in map(decode_example, dataset):
        yield {"numbers": example["numbers"], "ids": example["ids"]}, example["label"]


def filtering_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    return (pair for pair in feed(dataset, mode, metadata) if pair[1][0] > 0)


def loss(labels: Any, predictions: Any) -> Any:
    return (labels - predictions) ** 2


def misfit(labels: Any, predictions: Any) -> Any:
    return labels @ predictions


def factor(present: list[float]) -> Any:
    return present[0]


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
        "clipped": lambda parameters: made.SGD(0.05, parameters, grad_clip=norm()),
        "halving": halving,
        "own adagrad": lambda parameters: OwnAdagrad(0.1),
    }[name]


def eval_metrics_fn() -> Any:
    return {"mse": metrics.MeanSquaredError()}


def callback(events: list[str], stop_after: int) -> Any:
    class Callback:
        stop_training = False

        def on_train_begin(self, logs: Any = None) -> None:
            events.append("train")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            events.append(f"epoch {epoch}")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            events.append(f"end of {epoch}")
            self.stop_training = epoch >= stop_after

    return Callback()


def exported_outputs(path: Path, numbers: Any) -> Any:
    program = paddle.jit.load(str(path / "model"))
    program.eval()
    return np.asarray(program(paddle.to_tensor(numbers)))
