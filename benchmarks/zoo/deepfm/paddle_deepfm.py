"""The model of the parameter server benchmark, as a definition for Paddle."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

import elasticdl.paddle
from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.paddle_model import DeepFM
from benchmarks.parameter_servers.progress import Progress
from benchmarks.zoo.deepfm import settings
from elasticdl.jobs.mode import Mode
from elasticdl.worker.scoring.metrics import Accuracy


class Model(nn.Layer):  # type: ignore[misc]
    def __init__(self, layers: tuple[int, ...]) -> None:
        super().__init__()
        spread = {"kind": "uniform", "low": -clicks.SPREAD, "high": clicks.SPREAD}
        self.table = elasticdl.paddle.Embedding(clicks.WIDTH, name="table", initializer=spread)
        self.rest = DeepFM(layers)

    def forward(self, numbers: Any, ids: Any) -> Any:
        return self.rest(numbers, self.table(ids))


def custom_model() -> Any:
    paddle.seed(0)
    return Model(settings.layers())


def custom_data_reader(data_origin: str, records_per_task: int | None = None, **kwargs: Any) -> Any:
    return settings.Records(data_origin)


@elasticdl.paddle.batched
def feed(columns: Any, mode: Mode, metadata: Any) -> Any:
    return {"numbers": columns["numbers"], "ids": columns["ids"]}, columns["label"]


def loss(labels: Any, predictions: Any) -> Any:
    return nn.functional.binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters: Any) -> Any:
    assert settings.optimizer() == "adam"
    return paddle.optimizer.Adam(clicks.RATE, parameters=parameters)


def callbacks() -> list[Any]:
    return [Progress()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": Accuracy(threshold=0.0)}
