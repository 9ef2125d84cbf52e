"""Feeds that make each sample of one record get all shards as one stream, and the account of each stays exact."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.data.reader import BadRecords, Metadata, Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ProgramError
from elasticdl.worker.keras.input.feed_analysis import Feed
from elasticdl.worker.keras.input.pipeline import BatchStream
from elasticdl.worker.keras.input.record_stream import RecordStream
from elasticdl.worker.keras.input.shard_dataset import Pipeline
from elasticdl.worker.trainer import Batch, Shard

Stream = Callable[..., BatchStream]


def doubled(dataset: Any, *_: Any) -> Any:
    def both(record: Any) -> Any:
        value = tf.strings.to_number(record, tf.int32)
        return {"x": value, "wide": tf.fill([3], value)}, value * 2

    return dataset.map(both, num_parallel_calls=tf.data.AUTOTUNE)


def leases(*ranges: tuple[int, int]) -> list[Shard]:
    return [Shard(lease_id=i, epoch=0, start=start, end=end) for i, (start, end) in enumerate(ranges)]


@pytest.fixture
def stream(memory_reader: Callable[..., Reader]) -> Stream:
    def make(
        shards: Any, *, feed: Any = doubled, size: int = 4, corrupt: Any = (), allowed: bool = False
    ) -> BatchStream:
        reader = memory_reader([str(i).encode() for i in range(5000)], list(corrupt))
        made = Feed(feed, mode=Mode.TRAINING, metadata=reader.metadata, name="test")
        return BatchStream(made, reader, shards, batch_size=size, skip_bad=allowed)

    return make


def way_of(batches: BatchStream) -> type:
    return type(batches._batches)


def values(batch: Batch) -> list[int]:
    return [] if batch.features is None else list(batch.features["x"].numpy())


@pytest.mark.parametrize("size", [1, 7, 256, 300, 1024])
def test_every_record_once_in_the_order_of_the_shards(stream: Stream, size: int) -> None:
    random = np.random.default_rng(size)
    ranges = []
    for _ in range(min(40, 8 * size)):
        start = int(random.integers(0, 4000))
        ranges.append((start, start + int(random.integers(1, 700))))
    batches = stream(leases(*ranges), size=size)
    found: dict[int, list[int]] = {}
    before = -1
    for batch in batches:
        assert batch.shard.lease_id >= before
        before = batch.shard.lease_id
        mine = found.setdefault(before, [])
        assert batch.size == len(values(batch)) == len(batch.features["wide"]) == len(batch.labels)
        assert list(batch.labels.numpy()) == [value * 2 for value in values(batch)]
        mine += values(batch)
        start, end = ranges[before]
        assert batch.position == start + len(mine)
        assert batch.last == (batch.position == end)
        assert batch.size == size or batch.last
        assert not batch.atomic
    assert way_of(batches) is RecordStream
    assert found == {i: list(range(start, end)) for i, (start, end) in enumerate(ranges)}


def test_partial_batches_are_not_filled_up_with_other_shards(stream: Stream) -> None:
    found = [(b.shard.lease_id, values(b), b.last) for b in stream(leases((0, 5), (9, 10), (20, 24)))]
    assert found == [
        (0, [0, 1, 2, 3], False),
        (0, [4], True),
        (1, [9], True),
        (2, [20, 21, 22, 23], True),
    ]


def test_bad_records_in_every_place(stream: Stream) -> None:
    bad = [(0, 1), (6, 8), (12, 16), (18, 20), (600, 605)]
    batches = list(stream(leases((0, 8), (8, 12), (12, 16), (16, 20), (500, 700)), corrupt=bad, allowed=True))
    found = [(b.shard.lease_id, values(b), b.position, b.last, [x.start for x in b.bad]) for b in batches]
    assert found[:6] == [
        (0, [1, 2, 3, 4], 5, False, [0]),
        (0, [5], 6, False, []),
        (0, [], 8, True, [6]),
        (1, [8, 9, 10, 11], 12, True, []),
        (2, [], 16, True, [12]),
        (3, [16, 17], 18, False, []),
    ]
    assert found[6] == (3, [], 20, True, [18])
    assert [x for b in batches[7:] for x in values(b)] == [*range(500, 600), *range(605, 700)]
    assert [x.start for b in batches[7:] for x in b.bad] == [600]


def test_bad_record_comes_as_an_error_after_the_batches_before_it(stream: Stream) -> None:
    batches = stream(leases((0, 4), (4, 8), (8, 12)), corrupt=[(9, 10)])
    assert [values(next(batches)), values(next(batches))] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(BadRecords):
        next(batches)
    assert list(batches) == []


def test_bad_record_before_there_is_a_whole_batch(stream: Stream) -> None:
    with pytest.raises(BadRecords):
        next(stream(leases((0, 1000)), corrupt=[(700, 701)], size=900))


def test_the_end_of_a_shard_does_not_wait_for_the_next(stream: Stream) -> None:
    """The master may give the next shard only when this one is accounted for."""
    done = threading.Event()

    def leased() -> Iterator[Shard]:
        first, second = leases((0, 6), (10, 13))
        yield first
        assert done.wait(60)
        yield second

    batches = stream(leased(), corrupt=[(5, 6)], allowed=True)
    assert [(values(batch), batch.last) for batch in (next(batches), next(batches), next(batches))] == [
        ([0, 1, 2, 3], False),
        ([4], False),
        ([], True),
    ]
    done.set()
    assert [values(batch) for batch in batches] == [[10, 11, 12]]


def test_closing_from_another_thread_ends_the_wait(stream: Stream) -> None:
    waiting, never = threading.Event(), threading.Event()

    def leased() -> Iterator[Shard]:
        yield leases((0, 4))[0]
        waiting.set()
        never.wait(60)

    batches = stream(leased())
    got: list[list[int]] = []
    reader = threading.Thread(target=lambda: got.extend(map(values, batches)))
    reader.start()
    assert waiting.wait(60)
    batches.close()
    reader.join(60)
    never.set()
    assert not reader.is_alive()
    assert got in ([], [[0, 1, 2, 3]])
    assert list(batches) == []


def test_closing_while_the_first_batch_waits_for_records(stream: Stream) -> None:
    waiting, never = threading.Event(), threading.Event()

    def leased() -> Iterator[Shard]:
        yield leases((0, 4))[0]
        waiting.set()
        never.wait(60)

    batches = stream(leased(), size=4, corrupt=[(1, 4)], allowed=True)
    reader = threading.Thread(target=lambda: list(batches))
    reader.start()
    assert waiting.wait(60)
    batches.close()
    reader.join(60)
    never.set()
    assert not reader.is_alive()


def test_feed_is_called_once(stream: Stream) -> None:
    calls = []

    def feed(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
        calls.append(mode)
        return doubled(dataset)

    assert len(list(stream(leases((0, 4), (4, 8)), feed=feed))) == 2
    assert calls == [Mode.TRAINING]


def test_feed_that_does_more_goes_shard_by_shard(stream: Stream) -> None:
    batches = stream(leases((0, 4), (8, 12)), feed=lambda dataset, *_: doubled(dataset.shuffle(4)))
    assert [sorted(values(batch)) for batch in batches] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert way_of(batches) is Pipeline


def test_feed_that_looks_at_its_first_record(stream: Stream) -> None:
    """It gets to see the records of its own shard, and no shard loses any by it."""

    def feed(dataset: Any, *_: Any) -> Any:
        first = next(iter(dataset.take(1).as_numpy_iterator()))
        samples = doubled(dataset)
        return samples.map(lambda x, y: (x | {"first": tf.constant(int(first))}, y))

    batches = list(stream(leases((0, 5), (10, 12)), feed=feed))
    assert [x for batch in batches for x in values(batch)] == [0, 1, 2, 3, 4, 10, 11]
    assert [list(batch.features["first"].numpy()) for batch in batches] == [[0] * 4, [0], [10] * 2]


def test_feed_that_looks_but_does_not_say_so(stream: Stream) -> None:
    def feed(dataset: Any, *_: Any) -> Any:
        try:
            list(dataset.as_numpy_iterator())
        except tf.errors.OpError:
            return doubled(dataset)
        return doubled(dataset)

    batches = stream(leases((0, 4), (4, 8)), feed=feed)
    assert [values(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert way_of(batches) is not RecordStream


def test_feed_that_goes_through_all_records_for_each(stream: Stream) -> None:
    def feed(dataset: Any, *_: Any) -> Any:
        def with_total(record: Any) -> Any:
            total = dataset.reduce(0, lambda total, one: total + tf.strings.to_number(one, tf.int32))
            return {"x": tf.strings.to_number(record, tf.int32)}, total

        return dataset.map(with_total)

    batches = list(stream(leases((0, 3), (10, 12)), feed=feed))
    assert [values(batch) for batch in batches] == [[0, 1, 2], [10, 11]]
    assert [list(batch.labels.numpy()) for batch in batches] == [[3, 3, 3], [21, 21]]


def test_feed_that_changes_its_mind(stream: Stream) -> None:
    """What it did in one stream says nothing of the next."""
    calls = []

    def feed(dataset: Any, *_: Any) -> Any:
        calls.append(1)
        return doubled(dataset if len(calls) == 1 else dataset.filter(lambda record: record != b"2"))

    first, second = stream(leases((0, 4)), feed=feed), stream(leases((0, 4)), feed=feed)
    assert [values(batch) for batch in first] == [[0, 1, 2, 3]]
    assert [(values(batch), batch.atomic) for batch in second] == [([0, 1, 3], True)]


def test_feed_that_fails_on_a_record(stream: Stream) -> None:
    def feed(dataset: Any, *_: Any) -> Any:
        return doubled(dataset.map(lambda record: tf.where(record == b"6", b"six", record)))

    batches = stream(leases((0, 4), (4, 8)), feed=feed)
    assert values(next(batches)) == [0, 1, 2, 3]
    with pytest.raises(ProgramError, match="The feed of test failed"):
        next(batches)


def test_feed_that_ends_in_the_middle_of_the_data(stream: Stream) -> None:
    def end(record: Any) -> Any:
        if record == b"6":
            raise tf.errors.OutOfRangeError(None, None, "no more")
        return record

    def feed(dataset: Any, *_: Any) -> Any:
        return doubled(dataset.map(lambda record: tf.py_function(end, [record], tf.string)))

    batches = stream(leases((0, 4), (4, 8)), feed=feed)
    assert values(next(batches)) == [0, 1, 2, 3]
    with pytest.raises((ProgramError, UserError)):
        next(batches)


def test_ragged_samples_go_another_way(stream: Stream) -> None:
    def feed(dataset: Any, *_: Any) -> Any:
        def letters(record: Any) -> Any:
            value = tf.strings.to_number(record, tf.int32)
            return {"x": value, "ragged": tf.RaggedTensor.from_row_lengths([value], [1])}, value

        return dataset.map(letters)

    batches = stream(leases((0, 5)), feed=feed)
    assert [values(batch) for batch in batches] == [[0, 1, 2, 3], [4]]
    assert way_of(batches) is not RecordStream
