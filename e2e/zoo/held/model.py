"""The small network of the model zoo for digits, with a gate before each batch."""

from typing import Any

import tensorflow as tf

from held.gate import Gate
from model_zoo.digits.keras_cnn import custom_model, eval_metrics_fn, feed, loss, optimizer

__all__ = ["callbacks", "custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


class Held(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._gate = Gate()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._gate.enter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._gate.leave()


def callbacks() -> list[Any]:
    return [Held()]
