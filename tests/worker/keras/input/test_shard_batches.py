"""Shards become batches that never cross them, in order, each saying how far it brings its shard."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.data.reader import Metadata, Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard

Stream = Callable[..., Any]


def number(record: Any) -> Any:
    return tf.strings.to_number(record, tf.int32)


def pairs(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
    return dataset.map(lambda record: (number(record), number(record)))


def shards(*ranges: tuple[int, int]) -> list[Shard]:
    return [Shard(lease_id=i, epoch=0, start=start, end=end) for i, (start, end) in enumerate(ranges)]


def summary(batch: Batch) -> tuple[Any, ...]:
    values = [] if batch.features is None else batch.features.numpy().tolist()
    return batch.shard.lease_id, values, batch.position, batch.last, batch.atomic


@pytest.fixture
def numbers(memory_reader: Callable[..., Reader]) -> Reader:
    return memory_reader([str(i).encode() for i in range(1000)])


@pytest.fixture
def stream(make_definition: Callable[..., ModelDefinition]) -> Stream:
    def make(
        feed: Any, reader: Reader, given: Any, *, mode: Mode = Mode.TRAINING, size: int = 4, bad: int = 0
    ) -> Any:
        trainer = KerasTrainer(definition=make_definition(feed=feed), model=tf.keras.Sequential())
        return trainer.batches(reader, given, mode=mode, batch_size=size, max_bad_records=bad)

    return make


def test_batches_end_with_their_shard(stream: Stream, numbers: Reader) -> None:
    assert [summary(batch) for batch in stream(pairs, numbers, shards((0, 6), (20, 24), (10, 11)))] == [
        (0, [0, 1, 2, 3], 4, False, False),
        (0, [4, 5], 6, True, False),
        (1, [20, 21, 22, 23], 24, True, False),
        (2, [10], 11, True, False),
    ]


def test_shard_of_many_chunks(stream: Stream, numbers: Reader) -> None:
    batches = list(stream(pairs, numbers, shards((5, 995)), size=100))
    assert [value for batch in batches for value in batch.features.numpy()] == list(range(5, 995))
    assert [batch.position for batch in batches] == [*range(105, 995, 100), 995]


def test_no_shards(stream: Stream, numbers: Reader) -> None:
    assert list(stream(pairs, numbers, [])) == []


def test_feed_that_lets_nothing_pass_still_ends_every_shard(stream: Stream, numbers: Reader) -> None:
    def nothing(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        return pairs(dataset.filter(lambda record: number(record) < 0), mode, metadata)

    batches = list(stream(nothing, numbers, shards((0, 6), (10, 12))))
    assert [summary(batch) for batch in batches] == [(0, [], 6, True, True), (1, [], 12, True, True)]
    assert [batch.size for batch in batches] == [0, 0]


def test_feed_that_filters_says_the_end_on_its_last_batch(stream: Stream, numbers: Reader) -> None:
    def even(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        return pairs(dataset.filter(lambda record: number(record) % 2 == 0), mode, metadata)

    batches = list(stream(even, numbers, shards((0, 16), (20, 24))))
    assert [(batch.features.numpy().tolist(), batch.last) for batch in batches] == [
        ([0, 2, 4, 6], False),
        ([8, 10, 12, 14], True),
        ([20, 22], True),
    ]
    assert all(batch.atomic for batch in batches)


def test_feed_that_repeats_and_branches_reads_the_shard_again(stream: Stream, numbers: Reader) -> None:
    def twice(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        return tf.data.Dataset.zip((dataset.map(number), dataset.map(number))).repeat(2)

    batches = list(stream(twice, numbers, shards((0, 600), (700, 702)), size=1000))
    assert batches[0].features.numpy().tolist() == [*range(600), *range(400)]
    assert batches[0].labels.numpy().tolist() == [*range(600), *range(400)]
    assert batches[1].features.numpy().tolist() == list(range(400, 600))
    assert batches[2].features.numpy().tolist() == [700, 701, 700, 701]


@pytest.mark.parametrize("way", ["generator", "values"])
def test_feed_that_goes_through_its_data_in_python(stream: Stream, numbers: Reader, way: str) -> None:
    def generator(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        def rows() -> Iterator[tuple[int, int]]:
            for record in dataset:
                yield int(record.numpy()), int(record.numpy())

        spec = tf.TensorSpec([], tf.int32)
        return tf.data.Dataset.from_generator(rows, output_signature=(spec, spec))

    def values(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        found = [int(record) for record in dataset.as_numpy_iterator()]
        return tf.data.Dataset.from_tensor_slices((found, found))

    feed = {"generator": generator, "values": values}[way]
    batches = list(stream(feed, numbers, shards((0, 6), (20, 22))))
    assert [summary(batch) for batch in batches] == [
        (0, [0, 1, 2, 3], 0, False, True),
        (0, [4, 5], 6, True, True),
        (1, [20, 21], 22, True, True),
    ]


def test_feed_is_called_once_for_all_shards(stream: Stream, numbers: Reader) -> None:
    calls = []

    def feed(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        calls.append(mode)
        return pairs(dataset, mode, metadata)

    list(stream(feed, numbers, shards(*((i, i + 4) for i in range(0, 80, 4))), mode=Mode.EVALUATION))
    assert calls == [Mode.EVALUATION]


def test_features_without_labels_in_prediction(stream: Stream, numbers: Reader) -> None:
    (batch,) = stream(lambda dataset, *_: dataset.map(number), numbers, shards((0, 3)), mode=Mode.PREDICTION)
    assert batch.features.numpy().tolist() == [0, 1, 2]
    assert batch.labels is None


def test_next_shard_is_taken_only_when_it_is_wanted(stream: Stream, numbers: Reader) -> None:
    taken = []
    last_wanted = threading.Event()

    def leased() -> Iterator[Shard]:
        for shard in shards((0, 100), (100, 200), (200, 300)):
            taken.append(shard.lease_id)
            if shard.lease_id == 1:
                last_wanted.set()
            yield shard

    # Reading ahead is by some batches, far fewer than these shards have.
    batches = stream(pairs, numbers, leased(), size=1)
    for _ in range(50):
        next(batches)
    assert taken == [0]
    for _ in range(49):
        next(batches)
    assert last_wanted.wait(60)
    assert taken == [0, 1]
    batches.close()
