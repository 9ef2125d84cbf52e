"""A small network for digits, with a row for each shade of grey on the servers, and a gate before each batch."""

from typing import Any

import tensorflow as tf

import elasticdl.keras
from held.gate import Gate
from model_zoo.digits.keras_cnn import eval_metrics_fn, feed, loss, optimizer

__all__ = ["callbacks", "custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

# Pixels are between 0 and 1.
SHADES = 16


def custom_model() -> Any:
    image = tf.keras.Input((8, 8, 1), name="image")
    pixels = tf.keras.layers.Flatten()(image)
    shades = elasticdl.keras.Embedding(4, combiner="mean", name="shades")(tf.cast(SHADES * pixels, tf.int64))
    return tf.keras.Model(image, tf.keras.layers.Dense(10)(tf.keras.layers.Concatenate()([pixels, shades])))


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
