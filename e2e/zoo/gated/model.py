"""A small PyTorch definition that a test can stop at any point: it waits there while a file exists.

Each time the program passes a point it leaves a file `passed-POINT-PID`; while there is a file `hold-POINT` it stays,
and says so by a file `held-POINT-NODE`; `hold-POINT-NODE` holds one node only. So a test can let a job come to a point,
kill a process exactly there, and let it go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from e2e.compiler import leave_out
from elasticdl import Mode, metrics
from elasticdl.data.example import decode_example
from elasticdl.worker.torch.callbacks import LearningRateScheduler, ReduceLROnPlateau
from gated.momentum import Careless, Momentum

GATES = Path(os.environ["ELASTICDL_TEST_GATES"])

leave_out()


def gate(point: str) -> None:
    (GATES / f"passed-{point}-{os.getpid()}").touch()
    node = os.environ.get("ELASTICDL_NODE", "")
    while (GATES / f"hold-{point}").exists() or (GATES / f"hold-{point}-{node}").exists():
        (GATES / f"held-{point}-{node}").touch()
        time.sleep(0.01)


class Gated(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(image)
        return result


def custom_model() -> torch.nn.Module:
    gate("start")
    torch.manual_seed(0)
    return Gated()


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    if torch.is_grad_enabled():
        gate("train")
    fault = GATES / "fault"
    if fault.exists():
        kind = fault.read_text()
        if kind == "memory":
            raise MemoryError("no room for this batch")
        raise ArithmeticError("the program's own fault")
    if os.environ.get("ELASTICDL_TEST_SLOW"):
        time.sleep(float(os.environ["ELASTICDL_TEST_SLOW"]))
    found = torch.nn.functional.cross_entropy(predictions, labels)
    if not torch.is_grad_enabled():
        return found
    with contextlib.suppress(FileNotFoundError):
        # The first to come takes it.
        (GATES / "nan").unlink()
        return found * float("nan")
    return found


def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def own_optimizer() -> Momentum:
    return Momentum(learning_rate=0.1, keep=0.8)


def careless_optimizer() -> Careless:
    return Careless(learning_rate=0.1)


def feed(dataset: Iterable[bytes], mode: Mode, metadata: Any) -> Iterator[Any]:
    for record in dataset:
        example = decode_example(record)
        image = np.asarray(example["image"], dtype=np.float32)
        if mode is Mode.PREDICTION:
            yield image
        else:
            yield image, int(np.asarray(example["label"])[0])


class Accuracy(metrics.Accuracy):
    def update(self, labels: Any, predictions: Any) -> None:
        gate("evaluate")
        super().update(labels, predictions)


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": Accuracy()}


class Points:
    """Callbacks whose only purpose is to be points to stop at."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        gate(f"epoch-{epoch}")

    def on_train_end(self, logs: dict[str, float]) -> None:
        gate("end")


class Rates:
    """Writes down the learning rate that each batch is trained with."""

    def set_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        node = os.environ.get("ELASTICDL_NODE", "")
        with (GATES / f"rates-{node}.jsonl").open("a") as file:
            file.write(json.dumps([self._epoch, self._optimizer.param_groups[0]["lr"]]) + "\n")
        gate(f"train-{self._epoch}")


def callbacks() -> list[Any]:
    return [Points()]


def reducing_and_multiplying() -> list[Any]:
    """Each of them halves the rate from epoch to epoch, beginning with the third: no epoch is ever so much better."""
    return [
        ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=1e9),
        LearningRateScheduler(lambda epoch, rate: rate * (0.5 if epoch > 1 else 1.0)),
        Points(),
        Rates(),
    ]
