"""The model of the parameter server benchmark, as a definition for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import elasticdl.torch
from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress
from benchmarks.parameter_servers.torch_model import DeepFM
from benchmarks.zoo.deepfm import settings
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self, layers: tuple[int, ...]) -> None:
        super().__init__()
        spread = {"kind": "uniform", "low": -clicks.SPREAD, "high": clicks.SPREAD}
        self.table = elasticdl.torch.Embedding(clicks.WIDTH, name="table", initializer=spread)
        self.rest = DeepFM(layers)
        assert sum(each.numel() for each in self.rest.parameters()) == clicks.dense_parameters(layers)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.rest(numbers, self.table(ids))
        return logits


def custom_model() -> nn.Module:
    torch.manual_seed(0)
    return Model(settings.layers())


def custom_data_reader(data_origin: str, records_per_task: int | None = None, **kwargs: Any) -> Any:
    return settings.Records(data_origin)


@elasticdl.torch.batched
def feed(columns: Any, mode: Mode, metadata: Any) -> Any:
    return {"numbers": columns["numbers"], "ids": columns["ids"]}, columns["label"]


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if settings.optimizer() == "sgd":
        return torch.optim.SGD(parameters, lr=clicks.PLAIN_RATE)
    if settings.optimizer() == "adam":
        return torch.optim.Adam(parameters, lr=clicks.RATE)
    return torch.optim.Adagrad(
        parameters, lr=clicks.RATE, initial_accumulator_value=clicks.START, eps=clicks.EPSILON
    )


def callbacks() -> list[Any]:
    return [Progress()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": Accuracy(threshold=0.0)}
