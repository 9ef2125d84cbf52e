"""Every framework: shards become batches that never cross them, and what a feed leaves out is found out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.data.feeds import batched
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.trainer import Batch, Shard, Trainer
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


def column_records() -> list[dict[str, Any]]:
    return [
        {"numbers": np.full(4, number, np.float64), "label": np.float32(number % 2)} for number in range(20)
    ]


def batches_of(trainer: Trainer, reader: Any, mode: Mode) -> list[Batch]:
    shards = [Shard(lease_id=n, epoch=0, start=10 * n, end=10 * n + 10) for n in range(2)]
    stream: Any = trainer.batches(reader, shards, mode=mode, batch_size=4, max_bad_records=100)
    found: list[Batch] = list(stream)
    stream.close()
    return found


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.EVALUATION, Mode.PREDICTION])
def test_feed_of_columns_gives_batches_of_feed_of_records(
    trainer: Callable[..., Trainer], framework: Framework, memory_reader: Any, mode: Mode
) -> None:
    reader = memory_reader(column_records(), kind="columns")
    ours = batches_of(trainer(feed=batched(framework.columns_feed)), reader, mode)
    theirs = batches_of(trainer(feed=framework.records_feed), reader, mode)
    assert [(b.position, b.size, b.last, b.atomic) for b in ours] == [
        (4, 4, False, False),
        (8, 4, False, False),
        (10, 2, True, False),
        (14, 4, False, False),
        (18, 4, False, False),
        (20, 2, True, False),
    ]

    def joined(found: list[Batch], part: str) -> Any:
        return np.concatenate([np.asarray(getattr(batch, part)) for batch in found if batch.size])

    np.testing.assert_array_equal(joined(ours, "features"), joined(theirs, "features"))
    if mode is not Mode.PREDICTION:
        np.testing.assert_array_equal(np.ravel(joined(ours, "labels")), np.ravel(joined(theirs, "labels")))


@pytest.mark.parametrize(
    "given_back",
    [lambda x: (x[1:], x), lambda x: (x[:-1], x), lambda x: (x, 1.0), lambda x: (1.0, x)],
    ids=["fewer features", "fewer features at the end", "one label", "one feature"],
)
def test_feed_of_columns_that_loses_samples_is_refused(
    trainer: Callable[..., Trainer], memory_reader: Any, given_back: Callable[[Any], Any]
) -> None:
    @batched
    def wrong(columns: Any, mode: Mode, metadata: Any) -> Any:
        return given_back(columns["label"])

    with pytest.raises(UserError, match="was given columns of 4 records, and gives"):
        batches_of(trainer(feed=wrong), memory_reader(column_records(), kind="columns"), Mode.TRAINING)
