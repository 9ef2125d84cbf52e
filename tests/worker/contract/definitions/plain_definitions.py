"""The common part of the definitions in PyTorch and Paddle: feeds of NumPy arrays, losses, a base of callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticdl import metrics
from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode


def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for example in map(decode_example, dataset):
        yield example["numbers"], example["label"]


def table_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for example in map(decode_example, dataset):
        yield {"numbers": example["numbers"], "ids": example["ids"]}, example["label"]


def ids_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for example in map(decode_example, dataset):
        yield example["ids"], example["label"]


def filtering_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    return (pair for pair in feed(dataset, mode, metadata) if pair[1][0] > 0)


def loss(labels: Any, predictions: Any) -> Any:
    return (labels - predictions) ** 2


def misfit(labels: Any, predictions: Any) -> Any:
    return labels @ predictions


def factor(present: list[float]) -> Any:
    return present[0]


def eval_metrics_fn() -> Any:
    return {"mse": metrics.MeanSquaredError()}


def columns_feed(columns: Any, mode: Any, metadata: Any) -> Any:
    numbers = columns["numbers"].astype(np.float32)
    return numbers if mode is Mode.PREDICTION else (numbers, columns["label"])


def records_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for record in dataset:
        numbers = record["numbers"].astype(np.float32)
        yield numbers if mode is Mode.PREDICTION else (numbers, record["label"])


class Callback:
    model: Any = None

    def set_model(self, model: Any) -> None:
        self.model = model
