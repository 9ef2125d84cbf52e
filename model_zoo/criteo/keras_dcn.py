"""Deep & Cross on clicks, in Keras: layers that multiply the features with themselves, beside a deep network.

Wang et al., DCN V2: Improved Deep & Cross Network, 2021. The data is that of `keras_clicks.py`.
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


def custom_model(dimension: int = 16, crosses: int = 2, rank: int = 32, hidden: tuple[int, ...] = (64, 32)):
    given = inputs()
    vectors = layers.Flatten()(embedding(dimension, "categories", stddev=0.1)(given["ids"]))
    features = crossed = layers.Concatenate()([vectors, given["numbers"]])
    for _ in range(crosses):
        # W is the product of two thin matrices.
        thin = layers.Dense(rank, use_bias=False)(crossed)
        product = layers.Multiply()([features, layers.Dense(features.shape[1])(thin)])
        crossed = layers.Add()([product, crossed])
    deep = Perceptron(hidden, outputs=0)(features)
    click = layers.Dense(1)(layers.Concatenate()([crossed, deep]))
    return tf.keras.Model(given, layers.Reshape((), name="click")(click))
