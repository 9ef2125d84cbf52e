"""The convolutional network of the first tutorials of PyTorch and Keras, for images like those of MNIST."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.stamps import BatchStamps, framework_import
from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy

with framework_import():
    import torch
    from torch import nn


def custom_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(1600, 10),
    )


def feed(dataset: Iterable[bytes], mode: Mode, metadata: Any) -> Iterator[Any]:
    for record in dataset:
        example: Any = decode_example(record)
        yield example["image"].reshape(1, 28, 28), example["label"][0]


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    # PyTorch imports a large part of itself when the first optimizer is created.
    with framework_import():
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def callbacks() -> list[Any]:
    return [BatchStamps()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": Accuracy()}
