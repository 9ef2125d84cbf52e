"""The convolutional network of the first tutorials of PyTorch and Keras, for images like those of MNIST."""

from __future__ import annotations

from typing import Any

from benchmarks.stamps import BatchStamps, framework_import
from elasticdl.jobs.mode import Mode

with framework_import():
    import tensorflow as tf

    # TensorFlow loads Keras at its first use.
    layers = tf.keras.layers


class KerasStamps(BatchStamps, tf.keras.callbacks.Callback):  # type: ignore[misc]
    # `fit` passes its logs on without waiting for their values.
    _supports_tf_logs = True


def custom_model() -> Any:
    # TensorFlow initializes itself with the first tensor, and Keras imports a part of itself lazily.
    with framework_import():
        return tf.keras.Sequential(
            [
                tf.keras.Input((28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dropout(0.5),
                layers.Dense(10),
            ]
        )


def feed(dataset: Any, mode: Mode, metadata: Any) -> Any:
    features = {
        "image": tf.io.FixedLenFeature([28, 28, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> tuple[Any, Any]:
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def loss(labels: Any, predictions: Any) -> Any:
    return tf.keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)


def optimizer() -> Any:
    return tf.keras.optimizers.SGD(0.01, momentum=0.9)


def callbacks() -> list[Any]:
    return [KerasStamps()]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
