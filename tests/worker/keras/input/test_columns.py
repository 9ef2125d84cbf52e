"""A feed of columns for Keras must return features and labels. `contract/` has what is common to all frameworks."""

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


def batches_of(feed: Any, make_definition: Any, reader: Any, mode: Mode) -> list[Batch]:
    inputs = tf.keras.Input((2,), name="x")
    model = tf.keras.Model({"x": inputs}, tf.keras.layers.Dense(1)(inputs))
    trainer = KerasTrainer(definition=make_definition(feed=feed), model=model)
    shards = [Shard(lease_id=n, epoch=0, start=10 * n, end=10 * n + 10) for n in range(2)]
    stream = trainer.batches(reader, shards, mode=mode, batch_size=4, max_bad_records=100)
    found = list(stream)
    stream.close()
    return found


def test_feed_of_columns_without_labels_is_refused(make_definition: Any, memory_reader: Any) -> None:
    @elasticdl.keras.batched
    def wrong(columns: Any, mode: Mode, metadata: Any) -> Any:
        return columns["y"]

    reader = memory_reader([{"x": np.zeros(2), "y": 0}] * 20, kind="columns")
    with pytest.raises(UserError, match="was given columns of 4 records, and gives"):
        batches_of(wrong, make_definition, reader, Mode.TRAINING)
