"""The definitions of the contract suite in Keras."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import elasticdl
import elasticdl.keras

layers = tf.keras.layers


def _dense(units: int, seed: int, **more: Any) -> Any:
    return layers.Dense(units, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=seed), **more)


def dense() -> Any:
    given = tf.keras.Input((4,), name="numbers")
    return tf.keras.Model(given, _dense(1, 2)(_dense(8, 1, activation="tanh")(given)))


def normalized() -> Any:
    given = tf.keras.Input((4,), name="numbers")
    return tf.keras.Model(given, _dense(1, 2)(layers.BatchNormalization()(_dense(8, 1)(given))))


def table() -> Any:
    numbers, ids = tf.keras.Input((4,), name="numbers"), tf.keras.Input((3,), dtype="int64", name="ids")
    rows = elasticdl.keras.Embedding(4, initializer="normal", name="rows")(ids)
    both = layers.Concatenate()([layers.Flatten()(rows), numbers])
    return tf.keras.Model({"numbers": numbers, "ids": ids}, _dense(1, 3)(both))


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
        "clipped": lambda: made.SGD(0.05, global_clipnorm=0.1),
        "halving": lambda: made.SGD(schedule),
        "own adagrad": lambda: OwnAdagrad(0.1),
    }[name]


def eval_metrics_fn() -> Any:
    return {"mse": tf.keras.metrics.MeanSquaredError()}


def callback(events: list[str], stop_after: int) -> Any:
    class Callback(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            events.append("train")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            events.append(f"epoch {epoch}")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            events.append(f"end of {epoch}")
            self.model.stop_training = epoch >= stop_after

    return Callback()


def exported_outputs(path: Path, numbers: Any) -> Any:
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    (name,) = served.structured_input_signature[1]
    (output,) = served(**{name: tf.constant(numbers)}).values()
    return np.asarray(output)
