"""Wide & Deep on clicks, in Keras: a weight for each id, and a deep network over embeddings.

Cheng et al., Wide & Deep Learning for Recommender Systems, 2016. The data is that of `keras_clicks.py`.
"""

import tensorflow as tf

from .keras_clicks import (
    Perceptron,
    embedding,
    eval_metrics_fn,
    feed,
    inputs,
    loss,
    optimizer,
)

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

layers = tf.keras.layers


def custom_model(dimension: int = 16, hidden: tuple[int, ...] = (64, 32)):
    given = inputs()
    weights = layers.Flatten()(embedding(1, "wide")(given["ids"]))
    wide = layers.Dense(1)(given["numbers"])
    vectors = layers.Flatten()(embedding(dimension, "deep")(given["ids"]))
    deep = Perceptron(hidden)(layers.Concatenate()([vectors, given["numbers"]]))
    return tf.keras.Model(given, Total(name="click")([wide, deep, weights]))


class Total(tf.keras.layers.Layer):
    """Sums all values of a sample to one number."""

    def call(self, parts):
        return tf.add_n([tf.reduce_sum(part, 1) for part in parts])
