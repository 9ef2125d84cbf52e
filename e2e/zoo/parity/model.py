"""Even or odd? A small Keras definition with a choice of optimizers, feeds and callbacks, for tests to name by flags.

The first values of the model are always the same, so that a job can be compared with a loop of Keras's own. What the
callbacks see is written to the folder in ELASTICDL_TEST_GATES, one file a process.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

GATES = Path(os.environ.get("ELASTICDL_TEST_GATES", "."))
NODE = os.environ.get("ELASTICDL_NODE", "")


def gate(point: str) -> None:
    """Leaves a mark, and stays while the test holds the point."""
    (GATES / f"passed-{point}-{os.getpid()}").touch()
    while (GATES / f"hold-{point}").exists():
        time.sleep(0.01)


def custom_model(noisy: bool = False) -> Any:
    """With `noisy` normalized over batches and with dropout: it has values that no gradient is for."""
    image = tf.keras.Input((64,), name="image")
    x = _dense(32, 1, activation="relu")(image)
    if noisy:
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Dropout(0.2)(x)
    return tf.keras.Model(inputs=image, outputs=_dense(1, 2)(x))


def _dense(units: int, seed: int, **more: Any) -> Any:
    initializer = tf.keras.initializers.GlorotUniform(seed=seed)
    return tf.keras.layers.Dense(units, kernel_initializer=initializer, **more)


def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    return dataset.map(_parse)


def shuffling_and_filtering(dataset: Any, mode: Any, metadata: Any) -> Any:
    """Learns from fours and above only, in any order."""
    return dataset.filter(lambda record: _example(record)["label"] >= 4).map(_parse).shuffle(1000)


def _example(record: Any) -> Any:
    features = {
        "image": tf.io.FixedLenFeature([64], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    return tf.io.parse_single_example(record, features)


def _parse(record: Any) -> Any:
    example = _example(record)
    return example["image"], tf.cast(example["label"] % 2 == 0, tf.float32)[tf.newaxis]


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)


def eval_metrics_fn() -> dict[str, Any]:
    return {
        "auc": tf.keras.metrics.AUC(from_logits=True),
        "accuracy": tf.keras.metrics.BinaryAccuracy(threshold=0.0),
    }


# -- optimizers ----------------------------------------------------------------------------------------------


def optimizer() -> Any:
    return tf.keras.optimizers.Adam(0.01)


def momentum() -> Any:
    return tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)


def sgd() -> Any:
    return tf.keras.optimizers.SGD(0.1)


def decaying() -> Any:
    """Nothing is learned after 60 steps: in the second epoch, of 45 steps each."""
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([30, 60], [0.1, 0.05, 0.0])
    return tf.keras.optimizers.SGD(schedule)


# -- callbacks -----------------------------------------------------------------------------------------------


class Points(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Points to stop at."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        gate("train")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        gate(f"epoch-{epoch}")


class Values(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps what the model is at the end of each epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        np.savez(GATES / f"values-{NODE}-{epoch}.npz", *self.model.get_weights())


class Rates(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Writes down the learning rate that each batch is trained with."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        with (GATES / f"rates-{NODE}.jsonl").open("a") as file:
            file.write(json.dumps([self._epoch, rate]) + "\n")
        gate(f"train-{self._epoch}")


class Recorder(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Records every event."""

    def _write(self, event: str, number: int | None, logs: Any) -> None:
        logs = {name: float(value) for name, value in (logs or {}).items()}
        with (GATES / f"events-{NODE}.jsonl").open("a") as file:
            file.write(json.dumps([event, number, logs]) + "\n")


def _recording(event: str) -> Any:
    if event in ("on_train_begin", "on_train_end", "on_test_begin", "on_test_end"):
        return lambda self, logs=None: self._write(event, None, logs)
    return lambda self, number, logs=None: self._write(event, number, logs)


for _event in ("train", "epoch", "train_batch", "test", "test_batch"):
    for _side in ("begin", "end"):
        setattr(Recorder, f"on_{_event}_{_side}", _recording(f"on_{_event}_{_side}"))


def callbacks() -> list[Any]:
    return [Points()]


def recording() -> list[Any]:
    return [Points(), Recorder(), Values()]


def boarding() -> list[Any]:
    board = tf.keras.callbacks.TensorBoard(str(GATES / f"board-{NODE}"), update_freq="epoch")
    return [*recording(), board]


def stopping() -> list[Any]:
    """Nothing is ever so much better: the second epoch is the last."""
    return [tf.keras.callbacks.EarlyStopping("val_loss", min_delta=1e9, patience=1), Values()]


def plateau() -> list[Any]:
    """Learns in the first two epochs only: the second was no better, whatever it was."""
    return [
        tf.keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.0, patience=1, min_delta=1e9),
        Values(),
    ]


def reducing_and_multiplying() -> list[Any]:
    """Each of them halves the rate from epoch to epoch, beginning with the third: no epoch is ever so much better."""
    return [
        tf.keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=1e9),
        tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * (0.5 if epoch > 1 else 1.0)),
        Points(),
        Rates(),
    ]


def values() -> list[Any]:
    return [Values()]
