"""The definitions of the contract suite in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import elasticdl
import elasticdl.torch
from elasticdl.worker.torch import callbacks
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
    torch.manual_seed(number)
    # These models are too small for more, and tests run side by side.
    torch.set_num_threads(1)


def dense() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def normalized() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


class Table(nn.Module):
    def __init__(self, name: str = "rows") -> None:
        super().__init__()
        self.rows = elasticdl.torch.Embedding(4, initializer="normal", name=name)
        self.out = nn.Linear(16, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.out(torch.cat([self.rows(ids).flatten(1), numbers], dim=1))


def table(name: str = "rows") -> Any:
    torch.manual_seed(1)
    return Table(name)


class TwoTables(Table):
    def __init__(self) -> None:
        super().__init__()
        self.others = elasticdl.torch.EmbeddingBag(4, name="rows")

    def forward(self, numbers: Any, ids: Any) -> Any:
        return super().forward(numbers, ids) + self.others(ids).sum(1, keepdim=True)


def two_tables_of_one_name() -> Any:
    return TwoTables()


class Freezable(nn.Module):
    def __init__(self, body: Any, looks_up: bool) -> None:
        super().__init__()
        self.body, self.looks_up = body, looks_up
        self.head = nn.Linear(4, 1)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.head(torch.tanh(self.body(ids).sum(1) if self.looks_up else self.body(numbers)))


def freezable(kind: str) -> Any:
    torch.manual_seed(1)
    if kind == "table":
        initializer = {"kind": "normal", "stddev": 0.5}
        return Freezable(elasticdl.torch.Embedding(4, initializer=initializer, name="body"), True)
    return Freezable(nn.Linear(4, 4), False)


def set_trained(model: Any, trained: bool) -> None:
    model.body.requires_grad_(trained)


class Large(nn.Module):
    """`changed`: its numbers are not those that PyTorch has drawn. `tied`: they are used in another way, too."""

    def __init__(self, rows: int, *, changed: bool, tied: bool) -> None:
        super().__init__()
        self.large = nn.Embedding(rows, 8)
        self.small = nn.Embedding(rows, 2)
        self.out = nn.Linear(10, 1)
        self.tied = tied
        if changed:
            self.large.weight.data *= 1.2

    def forward(self, numbers: Any, ids: Any) -> Any:
        large = self.large(ids).sum(1)
        out = self.out(torch.cat([large, self.small(ids).sum(1)], dim=1))
        return out + (large @ self.large.weight.T).sum(1, keepdim=True) if self.tied else out


def large(rows: int, *, changed: bool = False, tied: bool = False) -> Any:
    torch.manual_seed(1)
    return Large(rows, changed=changed, tied=tied)


class Halved(nn.Module):
    """All of it in half precision; rows of tables are float32, and converted."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.embedding = elasticdl.torch.Embedding(4, initializer="normal")
        self.out = nn.Linear(12, 1)
        self.to(kind)

    def forward(self, ids: Any) -> Any:
        return self.out(self.embedding(ids).to(self.out.weight.dtype).flatten(1)).float()


class Cast(Halved):
    """Parameters of float32, computed with in half precision."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__(torch.float32)
        self.kind = kind

    def forward(self, ids: Any) -> Any:
        with torch.autocast("cpu", self.kind):
            return self.out(self.embedding(ids).flatten(1)).float()


@contextmanager
def half_precision(variant: str) -> Iterator[Any]:
    kind, network = variant.split()
    torch.manual_seed(0)
    yield {"halved": Halved, "cast": Cast}[network](getattr(torch, kind))


def cross_entropy(labels: Any, predictions: Any) -> Any:
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def embedding(width: int, **options: Any) -> Any:
    return elasticdl.torch.Embedding(width, **options)


def bag(width: int, combiner: str, **options: Any) -> Any:
    return elasticdl.torch.EmbeddingBag(width, mode=combiner, **options)


def look_up(layer: Any, ids: Any, *, training: bool = False) -> Any:
    with torch.set_grad_enabled(training):
        return layer(torch.as_tensor(ids)).detach().numpy()


def own_rows(layer: Any) -> int:
    return len(layer._own().tables)


def combine(layer: Any, bags: Any, weights: Any) -> Any:
    flat, offsets = torch.tensor([*chain(*bags)]), torch.tensor(np.cumsum([0, *map(len, bags[:-1])]))

    def nested(parts: Any, dtype: Any) -> Any:
        return torch.nested.nested_tensor([torch.tensor(p, dtype=dtype) for p in parts], layout=torch.jagged)

    ids = nested(bags, torch.int64)
    forms = [
        (layer(bags), layer(bags, weights=weights)),
        (layer(flat, offsets), layer(flat, offsets, torch.tensor([*chain(*weights)]))),
        (layer(ids), layer(ids, weights=nested(weights, torch.float32))),
    ]
    return [(plain.detach().numpy(), weighted.detach().numpy()) for plain, weighted in forms]


def early_stopping(monitor: str, epochs: int) -> Any:
    return callbacks.EarlyStopping(monitor, patience=epochs - 1)


def rate_by_epoch(function: Any) -> Any:
    return callbacks.LearningRateScheduler(function)


def plateau(patience: int, factor: float = 0.5, least: float = 0.0) -> Any:
    return callbacks.ReduceLROnPlateau("val_loss", patience=patience, factor=factor, min_lr=least)


def _clipped(model: Any) -> Any:
    made = torch.optim.SGD(model.parameters(), 0.05)
    made.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) and None)
    return made


def _steep(parameters: Any) -> Any:
    made = torch.optim.SGD(parameters, 2.0)
    clipped = list(made.param_groups[0]["params"])
    made.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(clipped, 100.0) and None)
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
        "decayed": lambda parameters: made.Adam(parameters, 0.05, weight_decay=0.1),
        "clipped": _clipped,
        "steep": _steep,
        "halving": _halving,
        "own adagrad": lambda parameters: OwnAdagrad(0.1),
    }[name]


def exported_outputs(path: Path, features: Any) -> Any:
    program = torch.export.load(str(path / "model.pt2")).module()
    outputs = program(**features) if isinstance(features, dict) else program(torch.as_tensor(features))
    return np.asarray(outputs.detach())
