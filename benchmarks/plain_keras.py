"""The peer in Keras: `fit`, for the same model, data and parsing.

`python -m benchmarks.plain_keras DATA BATCH_SIZE`. Records enter tf.data in blocks, because a call into Python per
record would cost more than its parsing.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode

# Silences TensorFlow's start messages, as our workers do.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks.zoo.mnist import keras_cnn as definition

BLOCK = 256


def main(origin: str, batch_size: str) -> None:
    import tensorflow as tf

    reader = open_reader(origin)

    def blocks() -> Iterator[list[bytes]]:
        records = reader.read(0, len(reader))
        while block := list(itertools.islice(records, BLOCK)):
            yield block

    records = tf.data.Dataset.from_generator(
        blocks, output_signature=tf.TensorSpec([None], tf.string)
    ).unbatch()
    samples = definition.feed(records, Mode.TRAINING, reader.metadata)
    model = definition.custom_model()
    model.compile(optimizer=definition.optimizer(), loss=definition.loss)
    batches = samples.batch(int(batch_size)).prefetch(tf.data.AUTOTUNE)
    model.fit(batches, callbacks=definition.callbacks(), verbose=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
