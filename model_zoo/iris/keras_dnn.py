"""Irises from a CSV file: four measures and the name of the species, in a dense network.

elasticdl data make iris --output=data/iris
"""

import tensorflow as tf

SPECIES = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]


def custom_model(hidden: int = 16):
    return tf.keras.Sequential(
        [
            tf.keras.Input((4,), name="measures"),
            tf.keras.layers.Dense(hidden, activation="relu"),
            tf.keras.layers.Dense(hidden, activation="relu"),
            tf.keras.layers.Dense(len(SPECIES)),
        ]
    )


def feed(dataset, mode, metadata):
    """A record of a CSV file is a vector of strings, one a column."""

    def parse(row):
        label = tf.argmax(tf.cast(tf.equal(row[4], SPECIES), tf.int32), output_type=tf.int32)
        return tf.strings.to_number(row[:4]), label

    return dataset.map(parse)


def loss(labels, predictions):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer():
    return tf.keras.optimizers.Adam(0.02)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
