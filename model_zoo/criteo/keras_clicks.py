"""Clicks in the columns of Criteo's logs for Keras: what the models beside this module have in common.

    elasticdl data make criteo-like --rows=50000 --output=data/criteo

A row has a label, 13 numbers and 26 categories, separated by tabs as in the logs, or by commas below a header; any
number or category may be missing. Rows to predict for need no label.
"""

import tensorflow as tf

import elasticdl.keras

NUMBERS = 13
CATEGORIES = 26
# Before the text of each column: the same text in two columns is two ids.
_COLUMNS = [f"{column}:" for column in range(CATEGORIES)]


def feed(dataset, mode, metadata):
    def parse(row):
        cells = row[-NUMBERS - CATEGORIES :]
        given = cells[:NUMBERS]
        counts = tf.strings.to_number(tf.where(tf.equal(given, ""), "0", given))
        # They are spread over many magnitudes; a missing one is 0.
        numbers = tf.where(counts > 0, tf.math.log1p(tf.maximum(counts, 0.0)), counts)
        texts = tf.strings.join([tf.constant(_COLUMNS), cells[NUMBERS:]])
        features = {
            "numbers": numbers,
            "ids": tf.strings.to_hash_bucket_fast(texts, 2**63 - 1),
        }
        return (features, tf.strings.to_number(row[0])) if row.shape[0] > NUMBERS + CATEGORIES else features

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def loss(labels, predictions):
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer():
    return tf.keras.optimizers.Adagrad(0.05)


def eval_metrics_fn():
    return {
        "auc": tf.keras.metrics.AUC(from_logits=True),
        "accuracy": tf.keras.metrics.BinaryAccuracy(threshold=0.0),
    }


def inputs():
    return {
        "numbers": tf.keras.Input((NUMBERS,), name="numbers"),
        "ids": tf.keras.Input((CATEGORIES,), dtype="int64", name="ids"),
    }


def embedding(width, name, stddev=0.01):
    """A row of so many numbers for each id of all 26 columns."""
    return elasticdl.keras.Embedding(width, name=name, initializer={"kind": "normal", "stddev": stddev})


class Perceptron(tf.keras.layers.Layer):
    def __init__(self, hidden, outputs=1, **options):
        super().__init__(**options)
        self.hidden, self.outputs = tuple(hidden), outputs
        self.units = [tf.keras.layers.Dense(count, activation="relu") for count in self.hidden]
        if outputs:
            self.units.append(tf.keras.layers.Dense(outputs))

    def build(self, shape):
        for layer in self.units:
            layer.build(shape)
            shape = (*shape[:-1], layer.units)
        self.built = True

    def call(self, values):
        for layer in self.units:
            values = layer(values)
        return values

    def get_config(self):
        return {**super().get_config(), "hidden": self.hidden, "outputs": self.outputs}
