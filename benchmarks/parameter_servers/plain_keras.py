"""The peer `tf.keras`: the model in one process, with an ordinary embedding, compiled and fitted as Keras does."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.keras_model import deep_fm
from benchmarks.parameter_servers.progress import Progress


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    data = clicks.open_clicks(arguments.data)
    layers = clicks.LAYERS[arguments.size]
    start = tf.keras.initializers.RandomUniform(-clicks.SPREAD, clicks.SPREAD)
    table = tf.keras.layers.Embedding(data.sizes.ids, clicks.WIDTH, embeddings_initializer=start)
    model = deep_fm(layers, table)
    dense = (
        sum(int(np.prod(each.shape)) for each in model.trainable_variables) - data.sizes.ids * clicks.WIDTH
    )
    assert dense == clicks.dense_parameters(layers), dense
    optimizer = tf.keras.optimizers.Adagrad(
        clicks.RATE, initial_accumulator_value=clicks.START, epsilon=clicks.EPSILON
    )
    model.compile(optimizer, tf.keras.losses.BinaryCrossentropy(from_logits=True))

    def batches() -> Iterator[Any]:
        for numbers, ids, labels in data.batches():
            yield {"numbers": numbers, "ids": ids}, labels

    size = data.sizes.batch
    features = {
        "numbers": tf.TensorSpec((size, clicks.NUMBERS), tf.float32),
        "ids": tf.TensorSpec((size, clicks.CATEGORIES), tf.int64),
    }
    fed = tf.data.Dataset.from_generator(
        batches, output_signature=(features, tf.TensorSpec((size,), tf.float32))
    )
    progress = Progress("worker-0")
    callback = tf.keras.callbacks.LambdaCallback(on_batch_end=progress.on_train_batch_end)
    # Keras reports the mean loss of the epoch: with short epochs, it is that of the last batches.
    model.fit(
        fed.prefetch(2), epochs=1 << 40, steps_per_epoch=data.sizes.batches, verbose=0, callbacks=[callback]
    )


if __name__ == "__main__":
    main()
