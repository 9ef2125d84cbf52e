"""Every framework: shards become batches that never cross them, and what a feed leaves out is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.data.reader import BadRecords
from elasticdl.jobs.mode import Mode
from elasticdl.worker.trainer import Batch, Trainer
from tests.worker.contract.framework import Framework

Batches = Callable[..., list[Batch]]


def test_batches_end_with_their_shard(trainer: Callable[..., Trainer], batches: Batches) -> None:
    found = [
        (batch.shard.lease_id, batch.position, batch.size, batch.last)
        for batch in batches(trainer(), shards=3)
    ]
    assert found == [
        (number, 32 * number + position, 16, position == 32) for number in range(3) for position in (16, 32)
    ]


def test_feed_that_filters_is_credited_by_whole_shards(
    trainer: Callable[..., Trainer], batches: Batches, framework: Framework
) -> None:
    found = batches(trainer(feed=framework.filtering_feed), shards=2)
    assert [batch.shard.lease_id for batch in found if batch.last] == [0, 1]
    assert all(batch.atomic for batch in found if batch.last)
    assert 0 < sum(batch.size for batch in found) < 96


def test_bad_records_are_skipped_and_reported(trainer: Callable[..., Trainer], batches: Batches) -> None:
    found = batches(trainer(), corrupt=[(20, 30)], bad=100)
    assert sum(batch.size for batch in found) == 86
    assert [(bad.start, bad.end) for batch in found for bad in batch.bad] == [(20, 30)]
    assert found[-1].last


def test_bad_records_fail_where_none_is_allowed(trainer: Callable[..., Trainer], batches: Batches) -> None:
    with pytest.raises(BadRecords):
        batches(trainer(), corrupt=[(20, 30)])


def test_numbers_of_features_come_in_the_same_order(
    trainer: Callable[..., Trainer], batches: Batches
) -> None:
    made = trainer("table")
    first, *_ = batches(made, mode=Mode.TRAINING)
    arrays: list[Any] = made.features(first)
    assert [(array.dtype.name, array.shape) for array in arrays] == [("int64", (16, 3)), ("float32", (16, 4))]
    np.testing.assert_array_equal(arrays[0], made.features(first)[0])
