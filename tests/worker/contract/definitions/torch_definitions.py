"""The definitions of the contract suite in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import elasticdl
import elasticdl.torch
from elasticdl import metrics
from elasticdl.data.example import decode_example


def dense() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def normalized() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.torch.Embedding(4, initializer="normal", name="rows")
        self.out = nn.Linear(16, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.out(torch.cat([self.rows(ids).flatten(1), numbers], dim=1))


def table() -> Any:
    torch.manual_seed(1)
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


def _clipped(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), 0.05)
    made.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) and None)
    return made


def _halving(parameters: Any) -> Any:
    made = torch.optim.SGD(parameters, 0.1)
    return made, torch.optim.lr_scheduler.StepLR(made, 3, 0.5)


class OwnAdagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / (np.sqrt(slots["sum"]) + 1e-10)


def optimizer(name: str) -> Any:
    made = torch.optim
    return {
        "sgd": lambda parameters: made.SGD(parameters, 0.05),
        "momentum": lambda parameters: made.SGD(parameters, 0.02, momentum=0.9, nesterov=True),
        "adagrad": lambda parameters: made.Adagrad(parameters, 0.1),
        "adam": lambda parameters: made.Adam(parameters, 0.01),
        "adamw": lambda parameters: made.AdamW(parameters, 0.01, weight_decay=0.01),
        "rmsprop": lambda parameters: made.RMSprop(parameters, 0.01),
        "adadelta": lambda parameters: made.Adadelta(parameters, 1.0),
        "adamax": lambda parameters: made.Adamax(parameters, 0.01),
        "clipped": _clipped,
        "halving": _halving,
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
    program = torch.export.load(str(path / "model.pt2")).module()
    return np.asarray(program(torch.from_numpy(numbers)).detach())
