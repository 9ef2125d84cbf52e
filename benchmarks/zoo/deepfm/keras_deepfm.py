"""The model of the parameter server benchmark, as a definition for Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import elasticdl.keras
from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.keras_model import deep_fm
from benchmarks.parameter_servers.progress import Progress
from benchmarks.zoo.deepfm import settings
from elasticdl.jobs.mode import Mode


class KerasProgress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._progress = Progress()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._progress.on_train_batch_end(batch, logs)


def custom_model() -> Any:
    tf.keras.utils.set_random_seed(0)
    spread = {"kind": "uniform", "low": -clicks.SPREAD, "high": clicks.SPREAD}
    layers = settings.layers()
    return deep_fm(layers, elasticdl.keras.Embedding(clicks.WIDTH, name="table", initializer=spread))


def custom_data_reader(data_origin: str, records_per_task: int | None = None, **kwargs: Any) -> Any:
    return settings.Records(data_origin)


@elasticdl.keras.batched
def feed(columns: Any, mode: Mode, metadata: Any) -> Any:
    return {"numbers": columns["numbers"], "ids": columns["ids"]}, columns["label"]


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer() -> Any:
    return tf.keras.optimizers.Adagrad(
        clicks.RATE, initial_accumulator_value=clicks.START, epsilon=clicks.EPSILON
    )


def callbacks() -> list[Any]:
    return [KerasProgress()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": tf.keras.metrics.BinaryAccuracy(threshold=0.0)}
