"""xDeepFM on clicks, in Keras: products of features of any order (a compressed interaction network), weights, and a
deep network over the same embeddings.

Lian et al., xDeepFM: Combining Explicit and Implicit Feature Interactions, 2018. The data is that of `keras_clicks.py`.
"""

import tensorflow as tf

from .keras_clicks import (
    CATEGORIES,
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


class Interactions(tf.keras.layers.Layer):
    """Of every layer each map is a weighted sum of products of the layer before with the features, number by number."""

    def __init__(self, maps, **options):
        super().__init__(**options)
        self.maps = tuple(maps)

    def build(self, shape):
        fields = shape[1]
        before = [fields, *self.maps[:-1]]
        self.products = [
            self.add_weight(
                name=f"products_{number}",
                shape=(count, last, fields),
                initializer=tf.keras.initializers.RandomNormal(stddev=(last * fields) ** -0.5),
            )
            for number, (last, count) in enumerate(zip(before, self.maps, strict=True))
        ]
        self.built = True

    def call(self, vectors):
        found, last = [], vectors
        for weights in self.products:
            # For each sample: (layer, fields, dimension) -> (maps, dimension).
            pairs = tf.einsum("bhd,bmd->bhmd", last, vectors)
            last = tf.nn.relu(tf.einsum("bhmd,khm->bkd", pairs, tf.convert_to_tensor(weights)))
            found.append(tf.reduce_sum(last, 2))
        return tf.concat(found, axis=1)

    def get_config(self):
        return {**super().get_config(), "maps": self.maps}


class Head(tf.keras.layers.Layer):
    """Everything behind the lookup: of each row the first number is the id's weight, the others are its vector."""

    def __init__(self, dimension, maps, hidden, **options):
        super().__init__(**options)
        self.dimension, self.maps, self.hidden = dimension, tuple(maps), tuple(hidden)
        self.linear = tf.keras.layers.Dense(1)
        self.interactions = Interactions(self.maps)
        self.products = tf.keras.layers.Dense(1)
        self.deep = Perceptron(self.hidden)

    def build(self, shapes):
        self.linear.build((None, NUMBERS))
        self.interactions.build((None, CATEGORIES, self.dimension))
        self.products.build((None, sum(self.maps)))
        self.deep.build((None, CATEGORIES * self.dimension + NUMBERS))
        self.built = True

    def call(self, given):
        numbers, rows = given
        weights, vectors = rows[..., 0], rows[..., 1:]
        flat = tf.reshape(vectors, [-1, CATEGORIES * self.dimension])
        deep = self.deep(tf.concat([flat, numbers], axis=1))
        products = self.products(self.interactions(vectors))
        return tf.squeeze(self.linear(numbers) + deep + products, 1) + tf.reduce_sum(weights, 1)

    def get_config(self):
        return {
            **super().get_config(),
            "dimension": self.dimension,
            "maps": self.maps,
            "hidden": self.hidden,
        }


def custom_model(dimension: int = 16, maps: tuple[int, ...] = (16, 16), hidden: tuple[int, ...] = (64, 32)):
    given = inputs()
    rows = embedding(1 + dimension, "categories")(given["ids"])
    return tf.keras.Model(given, Head(dimension, maps, hidden, name="click")([given["numbers"], rows]))
