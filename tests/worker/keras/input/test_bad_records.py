"""Corrupt records: the error itself, or the samples around them, with the ranges reported in the right place."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.data.reader import BadRecords, Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Shard


@pytest.fixture
def read(
    make_definition: Callable[..., ModelDefinition], memory_reader: Callable[..., Reader]
) -> Callable[..., list[Any]]:
    def make(
        ranges: list[tuple[int, int]], corrupt: list[tuple[int, int]], *, allowed: int, repeat: int = 1
    ) -> Any:
        def feed(dataset: Any, mode: Mode, metadata: Any) -> Any:
            samples = dataset.map(lambda record: (tf.strings.to_number(record, tf.int32), 0))
            return samples if repeat == 1 else samples.repeat(repeat)

        reader = memory_reader([str(i).encode() for i in range(100)], corrupt)
        trainer = KerasTrainer(definition=make_definition(feed=feed), model=tf.keras.Sequential())
        shards = [Shard(lease_id=i, epoch=0, start=a, end=b) for i, (a, b) in enumerate(ranges)]
        batches = trainer.batches(reader, shards, mode=Mode.TRAINING, batch_size=4, max_bad_records=allowed)
        return [
            (
                batch.shard.lease_id,
                [] if batch.features is None else batch.features.numpy().tolist(),
                batch.position,
                batch.last,
                [(bad.start, bad.end) for bad in batch.bad],
            )
            for batch in batches
        ]

    return make


def test_not_allowed(read: Callable[..., Any]) -> None:
    with pytest.raises(BadRecords) as caught:
        read([(0, 10)], [(7, 9)], allowed=0)
    assert (caught.value.bad.start, caught.value.bad.end) == (7, 9)


def test_not_allowed_in_a_later_shard(read: Callable[..., Any]) -> None:
    with pytest.raises(BadRecords):
        read([(0, 4), (4, 10)], [(7, 9)], allowed=0)


def test_in_the_middle(read: Callable[..., Any]) -> None:
    assert read([(0, 10)], [(2, 4)], allowed=5) == [
        (0, [0, 1, 4, 5], 6, False, [(2, 4)]),
        (0, [6, 7, 8, 9], 10, True, []),
    ]


def test_between_two_batches(read: Callable[..., Any]) -> None:
    assert read([(0, 10)], [(4, 6)], allowed=5) == [
        (0, [0, 1, 2, 3], 4, False, []),
        (0, [6, 7, 8, 9], 10, True, [(4, 6)]),
    ]


def test_at_the_end(read: Callable[..., Any]) -> None:
    assert read([(0, 6), (6, 8)], [(4, 6)], allowed=5) == [
        (0, [0, 1, 2, 3], 4, False, []),
        (0, [], 6, True, [(4, 6)]),
        (1, [6, 7], 8, True, []),
    ]


def test_beyond_the_end_of_the_shard(read: Callable[..., Any]) -> None:
    assert read([(0, 6)], [(4, 50)], allowed=5) == [
        (0, [0, 1, 2, 3], 4, False, []),
        (0, [], 6, True, [(4, 6)]),
    ]


def test_whole_shards(read: Callable[..., Any]) -> None:
    assert read([(0, 4), (4, 8), (8, 12)], [(0, 4), (8, 12)], allowed=5) == [
        (0, [], 4, True, [(0, 4)]),
        (1, [4, 5, 6, 7], 8, True, []),
        (2, [], 12, True, [(8, 12)]),
    ]


def test_bad_records_read_twice_are_reported_once(read: Callable[..., Any]) -> None:
    assert read([(0, 6)], [(1, 3)], allowed=5, repeat=2) == [
        (0, [0, 3, 4, 5], 0, False, []),
        (0, [0, 3, 4, 5], 6, True, [(1, 3)]),
    ]
