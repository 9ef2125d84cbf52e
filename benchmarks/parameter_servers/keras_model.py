"""DeepFM in Keras, over any layer that maps ids to rows."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from benchmarks.parameter_servers.clicks import CATEGORIES, NUMBERS, WIDTH


class Pairs(keras.layers.Layer):  # type: ignore[misc]
    """The factorization machine: the sum of the products of all pairs of rows."""

    def call(self, rows: Any) -> Any:
        import tensorflow as tf

        together = tf.reduce_sum(rows, 1)
        return 0.5 * tf.reduce_sum(together * together - tf.reduce_sum(rows * rows, 1), 1, keepdims=True)


def deep_fm(layers: tuple[int, ...], table: Any) -> Any:
    """Logits of numbers and ids."""
    numbers = keras.Input((NUMBERS,), name="numbers")
    ids = keras.Input((CATEGORIES,), dtype="int64", name="ids")
    rows = table(ids)
    flat = keras.layers.Concatenate()([numbers, keras.layers.Reshape((CATEGORIES * WIDTH,))(rows)])
    deep = flat
    for units in layers:
        deep = keras.layers.Dense(units, activation="relu")(deep)
    parts = [keras.layers.Dense(1)(flat), keras.layers.Dense(1)(deep), Pairs()(rows)]
    logits = keras.layers.Reshape(())(keras.layers.Add()(parts))
    return keras.Model({"numbers": numbers, "ids": ids}, logits)
