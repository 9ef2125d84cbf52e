"""The definitions of the contract suite in Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import elasticdl
import elasticdl.keras
from elasticdl.jobs.mode import Mode

layers = tf.keras.layers
Callback = tf.keras.callbacks.Callback
# What a learning rate may differ by from the same one computed in another way: Keras has it in a float32.
RATE_TOLERANCE = 1e-6


def seed(number: int) -> None:
    tf.keras.utils.set_random_seed(number)


def _dense(units: int, seed: int, **more: Any) -> Any:
    return layers.Dense(units, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=seed), **more)


def dense() -> Any:
    given = tf.keras.Input((4,), name="numbers")
    return tf.keras.Model(given, _dense(1, 2)(_dense(8, 1, activation="tanh")(given)))


def normalized() -> Any:
    given = tf.keras.Input((4,), name="numbers")
    return tf.keras.Model(given, _dense(1, 2)(layers.BatchNormalization()(_dense(8, 1)(given))))


def table(name: str = "rows") -> Any:
    numbers, ids = tf.keras.Input((4,), name="numbers"), tf.keras.Input((3,), dtype="int64", name="ids")
    rows = elasticdl.keras.Embedding(4, initializer="normal", name=name)(ids)
    both = layers.Concatenate()([layers.Flatten()(rows), numbers])
    return tf.keras.Model({"numbers": numbers, "ids": ids}, _dense(1, 3)(both))


class TwoTables(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.keras.Embedding(4, name="rows")
        self.others = elasticdl.keras.Embedding(4, name="rows")

    def call(self, features: Any) -> Any:
        both = self.rows(features["ids"]) + self.others(features["ids"])
        return tf.reduce_sum(both, axis=[1, 2])[:, tf.newaxis]


def two_tables_of_one_name() -> Any:
    return TwoTables()


def freezable(kind: str) -> Any:
    numbers, ids = tf.keras.Input((4,), name="numbers"), tf.keras.Input((3,), dtype="int64", name="ids")
    if kind == "table":
        initializer = {"kind": "normal", "stddev": 0.5}
        body = elasticdl.keras.Embedding(4, combiner="sum", initializer=initializer, name="body")(ids)
    else:
        body = _dense(4, 1, name="body")(numbers)
    return tf.keras.Model({"numbers": numbers, "ids": ids}, _dense(1, 2)(layers.Activation("tanh")(body)))


def set_trained(model: Any, trained: bool) -> None:
    model.get_layer("body").trainable = trained


class Large(tf.keras.Model):
    """`tied`: the numbers of the large embedding are used in another way, too."""

    def __init__(self, rows: int, *, tied: bool) -> None:
        super().__init__()
        self.large = layers.Embedding(rows, 8, embeddings_initializer="random_normal", name="large")
        self.small = layers.Embedding(rows, 2, name="small")
        self.out = _dense(1, 2)
        self.tied = tied

    def call(self, features: Any) -> Any:
        sums = [tf.reduce_sum(layer(features["ids"]), axis=1) for layer in (self.large, self.small)]
        out = self.out(tf.concat(sums, axis=1))
        if not self.tied:
            return out
        tied = tf.matmul(sums[0], self.large.embeddings, transpose_b=True)
        return out + tf.reduce_sum(tied, axis=1, keepdims=True)


def large(rows: int, *, changed: bool = False, tied: bool = False) -> Any:
    model = Large(rows, tied=tied)
    if changed:
        model.large.build((None, 3))
        model.large.set_weights([1.2 * model.large.get_weights()[0]])
    return model


def _half_network() -> Any:
    given = tf.keras.Input((3,), dtype="int64")
    rows = layers.Flatten()(elasticdl.keras.Embedding(4, name="rows")(given))
    return tf.keras.Model(given, layers.Dense(1)(rows))


class Mixed(tf.keras.Model):
    """Concatenates the outputs of tables and of other layers, without a layer that would convert one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.keras.Embedding(4, name="rows")
        self.bag = elasticdl.keras.Embedding(4, name="bag", combiner="mean")
        self.dense = layers.Dense(4)
        self.out = layers.Dense(1)

    def call(self, ids: Any) -> Any:
        rows = tf.reshape(self.rows(ids), [-1, 12])
        ragged = self.bag(tf.RaggedTensor.from_tensor(ids))
        return self.out(tf.concat([rows, self.bag(ids) + ragged, self.dense(ids / 30)], 1))


@contextmanager
def half_precision(variant: str) -> Iterator[Any]:
    policy, network = variant.split()
    tf.keras.mixed_precision.set_global_policy(policy)
    tf.keras.utils.set_random_seed(0)
    try:
        yield {"functional": _half_network, "mixed": Mixed}[network]()
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def cross_entropy(labels: Any, predictions: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels, tf.cast(predictions, tf.float32))


def embedding(width: int, **options: Any) -> Any:
    return elasticdl.keras.Embedding(width, **options)


def bag(width: int, combiner: str, **options: Any) -> Any:
    return elasticdl.keras.Embedding(width, combiner=combiner, **options)


def look_up(layer: Any, ids: Any, *, training: bool = False) -> Any:
    return layer(tf.constant(ids), training=training).numpy()


def own_rows(layer: Any) -> int:
    return len(layer._own().tables)


def combine(layer: Any, bags: Any, weights: Any) -> Any:
    ids, factors = tf.ragged.constant(bags, dtype=tf.int64), tf.ragged.constant(weights)
    forms = [(ids, factors), (ids.to_sparse(), factors.to_sparse())]
    return [(layer(given).numpy(), layer(given, numbers).numpy()) for given, numbers in forms]


def early_stopping(monitor: str, epochs: int) -> Any:
    return tf.keras.callbacks.EarlyStopping(monitor, patience=epochs)


def rate_by_epoch(function: Any) -> Any:
    return tf.keras.callbacks.LearningRateScheduler(function)


def plateau(patience: int, factor: float = 0.5, least: float = 0.0) -> Any:
    return tf.keras.callbacks.ReduceLROnPlateau(
        "val_loss", patience=patience, factor=factor, min_lr=least, min_delta=1e-4
    )


def _parse(record: Any) -> Any:
    features = {
        "numbers": tf.io.FixedLenFeature([4], tf.float32),
        "ids": tf.io.FixedLenFeature([3], tf.int64),
        "label": tf.io.FixedLenFeature([1], tf.float32),
    }
    return tf.io.parse_single_example(record, features)


def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    def pair(record: Any) -> Any:
        example = _parse(record)
        return example["numbers"], example["label"]

    return dataset.map(pair)


def table_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    def pair(record: Any) -> Any:
        example = _parse(record)
        return {"numbers": example["numbers"], "ids": example["ids"]}, example["label"]

    return dataset.map(pair)


def ids_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    def pair(record: Any) -> Any:
        example = _parse(record)
        return example["ids"], example["label"]

    return dataset.map(pair)


def columns_feed(columns: Any, mode: Any, metadata: Any) -> Any:
    numbers = np.asarray(columns["numbers"], np.float32)
    return numbers if mode is Mode.PREDICTION else (numbers, columns["label"])


def records_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    def split(record: Any) -> Any:
        numbers = tf.cast(record["numbers"], tf.float32)
        return numbers if mode is Mode.PREDICTION else (numbers, record["label"])

    return dataset.map(split)


def filtering_feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    return feed(dataset, mode, metadata).filter(lambda _, label: label[0] > 0)


def loss(labels: Any, predictions: Any) -> Any:
    return (labels - predictions) ** 2


def misfit(labels: Any, predictions: Any) -> Any:
    return tf.matmul(labels, predictions)


def factor(present: list[float]) -> Any:
    return tf.py_function(lambda: present[0], [], tf.float32)


class OwnAdagrad(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.1}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient**2
        return value - learning_rate * gradient / np.sqrt(slots["sum"] + 1e-7)


def optimizer(name: str) -> Any:
    made = tf.keras.optimizers
    schedule = made.schedules.ExponentialDecay(0.1, 3, 0.5, staircase=True)
    return {
        "sgd": lambda: made.SGD(0.05),
        "momentum": lambda: made.SGD(0.02, momentum=0.9, nesterov=True),
        "adagrad": lambda: made.Adagrad(0.1),
        "adam": lambda: made.Adam(0.01),
        "adamw": lambda: made.AdamW(0.01, weight_decay=0.01),
        "rmsprop": lambda: made.RMSprop(0.01),
        "adadelta": lambda: made.Adadelta(1.0),
        "adamax": lambda: made.Adamax(0.01),
        "decayed": lambda: made.SGD(0.1, momentum=0.9, weight_decay=0.01),
        "clipped": lambda: made.SGD(0.05, global_clipnorm=0.1),
        "steep": lambda: made.SGD(0.5, global_clipnorm=100.0),
        "halving": lambda: made.SGD(schedule),
        "own adagrad": lambda: OwnAdagrad(0.1),
    }[name]


def eval_metrics_fn() -> Any:
    return {"mse": tf.keras.metrics.MeanSquaredError()}


def exported_outputs(path: Path, features: Any) -> Any:
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    names = list(served.structured_input_signature[1])
    given = features if isinstance(features, dict) else {names[0]: features}
    assert sorted(given) == sorted(names)
    (output,) = served(**{name: tf.constant(value) for name, value in given.items()}).values()
    return np.asarray(output)
