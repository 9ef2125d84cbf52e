"""The convolutional network of the other frameworks in Paddle, for images like those of MNIST."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.stamps import BatchStamps, framework_import
from elasticdl.data.example import decode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy

with framework_import():
    import paddle
    from paddle import nn


def custom_model() -> Any:
    return nn.Sequential(
        nn.Conv2D(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(1600, 10),
    )


def feed(dataset: Iterable[bytes], mode: Mode, metadata: Any) -> Iterator[Any]:
    for record in dataset:
        example: Any = decode_example(record)
        yield example["image"].reshape(1, 28, 28), example["label"][0]


def loss(labels: Any, predictions: Any) -> Any:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Any) -> Any:
    return paddle.optimizer.Momentum(0.01, 0.9, parameters)


def callbacks() -> list[Any]:
    return [BatchStamps()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": Accuracy()}
