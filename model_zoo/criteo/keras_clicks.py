"""Clicks in the columns of Criteo's logs for Keras: what the models beside this module have in common.

    elasticdl data make criteo-like --rows=50000 --output=data/criteo

A row has a label, 13 numbers and 26 categories, separated by tabs as in the logs, or by commas below a header; any
number or category may be missing. Rows to predict for need no label. Tables (Parquet) and Examples (RecordIO, TFRecord)
have the same in columns called label, I1 to I13 and C1 to C26.
"""

import tensorflow as tf

import elasticdl.keras
from elasticdl import Mode

NUMBERS = 13
CATEGORIES = 26
_NUMBERS = [f"I{number + 1}" for number in range(NUMBERS)]
_CATEGORIES = [f"C{number + 1}" for number in range(CATEGORIES)]
# Before the text of each column: the same text in two columns is two ids.
_COLUMNS = [f"{column}:" for column in range(CATEGORIES)]


def feed(dataset, mode, metadata):
    def parse(record):
        label, counts, texts = _columns(record, mode)
        # They are spread over many magnitudes; a missing one is 0.
        numbers = tf.where(counts > 0, tf.math.log1p(tf.maximum(counts, 0.0)), counts)
        features = {
            "numbers": tf.where(tf.math.is_nan(counts), 0.0, numbers),
            "ids": tf.strings.to_hash_bucket_fast(tf.strings.join([tf.constant(_COLUMNS), texts]), 2**63 - 1),
        }
        return features if label is None else (features, label)

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _columns(record, mode):
    """The label, if there is one, the numbers, and the texts of the categories."""
    if not isinstance(record, dict) and record.shape.rank:
        given = record[-NUMBERS - CATEGORIES : -CATEGORIES]
        counts = tf.strings.to_number(tf.where(tf.equal(given, ""), "0", given))
        has_label = record.shape[0] > NUMBERS + CATEGORIES
        return tf.strings.to_number(record[0]) if has_label else None, counts, record[-CATEGORIES:]
    if not isinstance(record, dict):
        kinds = {name: tf.io.FixedLenFeature([], tf.float32, float("nan")) for name in _NUMBERS}
        kinds |= {name: tf.io.FixedLenFeature([], tf.string, "") for name in _CATEGORIES}
        if mode != Mode.PREDICTION:
            kinds["label"] = tf.io.FixedLenFeature([], tf.int64)
        record = tf.io.parse_single_example(record, kinds)
    label = tf.cast(record["label"], tf.float32) if "label" in record else None
    counts = tf.stack([tf.cast(record[name], tf.float32) for name in _NUMBERS])
    return label, counts, tf.stack([record[name] for name in _CATEGORIES])


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
