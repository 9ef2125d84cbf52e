"""DeepFM on clicks, in Keras: products of all pairs of features, and a deep network over the same embeddings.

Guo et al., DeepFM: A Factorization-Machine based Neural Network for CTR Prediction, 2017. The data is that of
`keras_clicks.py`.
"""

import tensorflow as tf

from .keras_clicks import (
    NUMBERS,
    Perceptron,
    embedding,
    eval_metrics_fn,
    feed,
    inputs,
    loss,
    optimizer,
)

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


class Head(tf.keras.layers.Layer):
    """Everything behind the lookup: of each row the first number is the id's weight, the others are its vector."""

    def __init__(self, dimension, hidden, **options):
        super().__init__(**options)
        self.dimension, self.hidden = dimension, tuple(hidden)
        self.linear = tf.keras.layers.Dense(1)
        self.deep = Perceptron(self.hidden)

    def build(self, shapes):
        ids = shapes[1][1]
        self.vectors = self.add_weight(
            name="vectors",
            shape=(NUMBERS, self.dimension),
            initializer=tf.keras.initializers.RandomNormal(stddev=0.01),
        )
        self.linear.build((None, NUMBERS))
        self.deep.build((None, ids * self.dimension + NUMBERS))
        self.built = True

    def call(self, given):
        numbers, rows = given
        weights, vectors = rows[..., 0], rows[..., 1:]
        first = tf.squeeze(self.linear(numbers), 1) + tf.reduce_sum(weights, 1)
        scaled = numbers[..., tf.newaxis] * tf.convert_to_tensor(self.vectors)
        total = tf.reduce_sum(vectors, 1) + tf.reduce_sum(scaled, 1)
        squares = tf.reduce_sum(vectors * vectors, 1) + tf.reduce_sum(scaled * scaled, 1)
        pairs = 0.5 * tf.reduce_sum(total * total - squares, 1)
        flat = tf.reshape(vectors, [-1, vectors.shape[1] * self.dimension])
        deep = self.deep(tf.concat([flat, numbers], axis=1))
        return first + pairs + tf.squeeze(deep, 1)

    def get_config(self):
        return {**super().get_config(), "dimension": self.dimension, "hidden": self.hidden}


def custom_model(dimension: int = 16, hidden: tuple[int, ...] = (64, 32)):
    given = inputs()
    rows = embedding(1 + dimension, "categories")(given["ids"])
    return tf.keras.Model(given, Head(dimension, hidden, name="click")([given["numbers"], rows]))
