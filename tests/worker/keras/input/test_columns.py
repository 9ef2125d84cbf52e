"""A feed for Keras that takes columns gives the batches that one for single records gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard


@elasticdl.keras.batched
def columnwise(columns: Any, mode: Mode, metadata: Any) -> Any:
    features = {"x": np.asarray(columns["x"], np.float32)}
    return features if mode is Mode.PREDICTION else (features, columns["y"])


def recordwise(dataset: Any, mode: Mode, metadata: Any) -> Any:
    def split(record: Any) -> Any:
        features = {"x": tf.cast(record["x"], tf.float32)}
        return features if mode is Mode.PREDICTION else (features, record["y"])

    return dataset.map(split)


def batches_of(feed: Any, make_definition: Any, reader: Any, mode: Mode) -> list[Batch]:
    inputs = tf.keras.Input((2,), name="x")
    model = tf.keras.Model({"x": inputs}, tf.keras.layers.Dense(1)(inputs))
    trainer = KerasTrainer(definition=make_definition(feed=feed), model=model)
    shards = [Shard(lease_id=n, epoch=0, start=10 * n, end=10 * n + 10) for n in range(2)]
    stream = trainer.batches(reader, shards, mode=mode, batch_size=4, max_bad_records=100)
    found = list(stream)
    stream.close()
    return found


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.EVALUATION, Mode.PREDICTION])
def test_the_same_batches(mode: Mode, make_definition: Any, memory_reader: Any) -> None:
    records = [{"x": np.array([n, -n], np.float64), "y": n % 2} for n in range(20)]
    reader = memory_reader(records, kind="columns")
    ours, theirs = (batches_of(feed, make_definition, reader, mode) for feed in (columnwise, recordwise))
    assert [(b.position, b.size, b.last, b.atomic) for b in ours] == [
        (4, 4, False, False),
        (8, 4, False, False),
        (10, 2, True, False),
        (14, 4, False, False),
        (18, 4, False, False),
        (20, 2, True, False),
    ]
    np.testing.assert_array_equal(
        np.concatenate([b.features["x"].numpy() for b in ours]),
        np.concatenate([b.features["x"].numpy() for b in theirs if b.size]),
    )
    if mode is not Mode.PREDICTION:
        np.testing.assert_array_equal(
            np.concatenate([b.labels.numpy() for b in ours]),
            np.concatenate([b.labels.numpy() for b in theirs if b.size]),
        )


@pytest.mark.parametrize("given_back", [lambda x: x, lambda x: (x[1:], x), lambda x: (x, 1.0)])
def test_a_feed_that_gives_something_else(given_back: Any, make_definition: Any, memory_reader: Any) -> None:
    @elasticdl.keras.batched
    def wrong(columns: Any, mode: Mode, metadata: Any) -> Any:
        return given_back(columns["y"])

    reader = memory_reader([{"x": np.zeros(2), "y": 0}] * 20, kind="columns")
    with pytest.raises(UserError, match="was given columns of 4 records, and gives"):
        batches_of(wrong, make_definition, reader, Mode.TRAINING)
