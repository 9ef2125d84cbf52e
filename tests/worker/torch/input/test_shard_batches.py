"""Batches know their place in the shard as far as the feed keeps to the order, and no further."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.shard_batches import Stop
from elasticdl.worker.torch.input.model_inputs import ModelInputs
from elasticdl.worker.torch.input.pipeline import shard_batches
from elasticdl.worker.trainer import Batch, Shard

Feed = Callable[[Iterable[Any], Mode, Any], Any]


def one_to_one(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
    for record in dataset:
        yield np.float32(record), record % 2


def batches_of(
    feed: Feed, reader: Any, start: int, end: int, *, batch_size: int = 4, skip_bad: bool = False
) -> list[Batch]:
    return list(
        shard_batches(
            reader=reader,
            shard=Shard(lease_id=1, epoch=0, start=start, end=end),
            feed=feed,
            split=ModelInputs(lambda features: features).split(Mode.TRAINING),
            mode=Mode.TRAINING,
            batch_size=batch_size,
            skip_bad=skip_bad,
            stop=Stop(),
        )
    )


def test_positions_of_a_feed_in_order(memory_reader: Any) -> None:
    batches = batches_of(one_to_one, memory_reader(list(range(100))), 10, 20)
    assert [(b.position, b.size, b.last, b.atomic) for b in batches] == [
        (14, 4, False, False),
        (18, 4, False, False),
        (20, 2, True, False),
    ]
    assert torch.cat([b.features for b in batches]).tolist() == list(range(10, 20))
    assert batches[0].labels.tolist() == [0, 1, 0, 1]


def test_a_full_last_batch_is_the_last(memory_reader: Any) -> None:
    batches = batches_of(one_to_one, memory_reader(list(range(8))), 0, 8)
    assert [(b.position, b.size, b.last) for b in batches] == [(4, 4, False), (8, 4, True)]


def shuffled(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Any:
    records = list(dataset)
    random.Random(0).shuffle(records)
    return [(np.float32(record), 0) for record in records]


def read_ahead_by_one(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
    records = iter(dataset)
    held = next(records)
    for record in records:
        yield np.float32(held), 0
        held = record
    yield np.float32(held), 0


def repeated(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
    for record in dataset:
        yield np.float32(record), 0
        yield np.float32(record), 0


def filtered(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
    return ((np.float32(record), 0) for record in dataset if record % 2 == 0)


def twice_over(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
    for _ in range(2):
        yield from one_to_one(dataset, mode, metadata)


@pytest.mark.parametrize(
    ("feed", "samples"),
    [
        (shuffled, list(range(10))),
        (read_ahead_by_one, list(range(10))),
        (repeated, [i // 2 for i in range(20)]),
        (filtered, [0, 2, 4, 6, 8]),
        (twice_over, [*range(10), *range(10)]),
    ],
)
def test_feeds_without_order_are_all_or_nothing(feed: Feed, samples: list[int], memory_reader: Any) -> None:
    batches = batches_of(feed, memory_reader(list(range(10))), 0, 10)
    assert sorted(torch.cat([b.features for b in batches]).tolist()) == sorted(samples)
    assert batches[-1].atomic
    assert batches[-1].last
    assert batches[-1].position == 10
    # What was said before the feed fell out of step holds: all records before that position have been used.
    for batch in batches[:-1]:
        assert batch.atomic or set(range(batch.position)) == set(
            torch.cat([b.features for b in batches[: batches.index(batch) + 1]]).int().tolist()
        )


def test_a_late_filter_keeps_the_places_before_it(memory_reader: Any) -> None:
    def feed(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
        return ((np.float32(r), 0) for r in dataset if r != 9)

    batches = batches_of(feed, memory_reader(list(range(20))), 0, 20)
    assert [(b.position, b.atomic) for b in batches[:2]] == [(4, False), (8, False)]
    assert all(b.atomic for b in batches[2:])


def test_stopping_before_the_end_is_no_order(memory_reader: Any) -> None:
    def feed(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
        for record, _ in zip(dataset, range(6), strict=False):
            yield np.float32(record), 0

    batches = batches_of(feed, memory_reader(list(range(10))), 0, 10)
    assert sum(b.size for b in batches) == 6
    assert batches[-1].atomic


def test_a_shard_without_samples_ends_with_an_empty_batch(memory_reader: Any) -> None:
    def nothing(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Iterator[Any]:
        return (record for record in dataset if False)

    (batch,) = batches_of(nothing, memory_reader(list(range(10))), 2, 7)
    assert (batch.size, batch.last, batch.position, batch.features) == (0, True, 7, None)


def test_bad_samples_are_reported_with_the_batch_behind_them(memory_reader: Any) -> None:
    reader = memory_reader(list(range(30)), corrupt=[(0, 3), (12, 13), (18, 25)])
    batches = batches_of(one_to_one, reader, 2, 20, skip_bad=True)
    assert [(b.position, b.size, [(r.start, r.end) for r in b.bad]) for b in batches] == [
        (7, 4, [(2, 3)]),
        (11, 4, []),
        (12, 1, []),
        (17, 4, [(12, 13)]),
        (18, 1, []),
        (20, 0, [(18, 20)]),
    ]
    assert not any(b.atomic for b in batches)
    for batch in batches:
        if batch.size:
            assert batch.features.tolist() == list(range(batch.position - batch.size, batch.position))


def test_a_shard_of_bad_samples_only(memory_reader: Any) -> None:
    reader = memory_reader(list(range(10)), corrupt=[(0, 10)])
    (batch,) = batches_of(one_to_one, reader, 3, 7, skip_bad=True)
    assert (batch.size, batch.last, batch.position) == (0, True, 7)
    assert [(r.start, r.end, r.where, r.reason) for r in batch.bad] == [(3, 7, "memory:0", "zeros")]


def test_bad_samples_that_are_not_allowed(memory_reader: Any) -> None:
    reader = memory_reader(list(range(10)), corrupt=[(5, 6)])
    with pytest.raises(BadRecords, match=r"samples \[5, 6\)"):
        batches_of(one_to_one, reader, 0, 10)


@given(
    size=st.integers(1, 40),
    cuts=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    batch_size=st.integers(1, 7),
    corrupt=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=4),
)
def test_every_sample_is_in_a_batch_or_reported_as_bad(
    size: int, cuts: tuple[int, int], batch_size: int, corrupt: list[tuple[int, int]]
) -> None:
    from elasticdl.data.reader import BadRange, Reader

    class Damaged(Reader):
        def __len__(self) -> int:
            return size

        def read(self, start: int, end: int) -> Iterator[Any]:
            for index in range(start, end):
                for first, length in corrupt:
                    if first <= index < first + length:
                        raise BadRecords(BadRange(start=first, end=first + length, where="", reason=""))
                yield index

    start, end = sorted(cut % (size + 1) for cut in cuts)
    reader = Damaged(origin="memory")
    batches = batches_of(one_to_one, reader, start, end, batch_size=batch_size, skip_bad=True)
    seen: list[int] = []
    for batch in batches:
        for found in batch.bad:
            seen += range(found.start, found.end)
        if batch.size:
            seen += batch.features.int().tolist()
    assert seen == list(range(start, end))
    assert [b.last for b in batches] == [False] * (len(batches) - 1) + [True]
    assert batches[-1].position == end
    assert not any(b.atomic for b in batches)


class Squares(IterableDataset[Any]):
    def __init__(self, records: Iterable[Any]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[Any]:
        return ((np.float32(r * r), 0) for r in self._records)


class Indexed(Dataset[Any]):
    def __init__(self, records: Iterable[Any]) -> None:
        self._records = list(records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Any:
        return np.float32(self._records[index] ** 2), 0


@pytest.mark.parametrize(
    ("feed", "atomic"),
    [
        (lambda dataset, mode, metadata: Squares(dataset), False),
        (lambda dataset, mode, metadata: DataLoader(Squares(dataset), batch_size=None), False),
        (lambda dataset, mode, metadata: Indexed(dataset), True),
        (
            lambda dataset, mode, metadata: TensorDataset(torch.tensor(list(dataset)) ** 2.0, torch.zeros(6)),
            True,
        ),
    ],
)
def test_datasets_of_pytorch(feed: Feed, atomic: bool, memory_reader: Any) -> None:
    batches = batches_of(feed, memory_reader(list(range(6))), 0, 6)
    assert torch.cat([b.features for b in batches]).tolist() == [0, 1, 4, 9, 16, 25]
    assert {b.atomic for b in batches} == {atomic}


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (
            lambda dataset, mode, metadata: DataLoader(Squares(dataset), batch_size=2),
            "DataLoader that makes batches",
        ),
        (lambda dataset, mode, metadata: None, "returns NoneType"),
        (lambda dataset, mode, metadata: (np.zeros(3), np.zeros(3)), "returns tuple"),
        (lambda dataset, mode, metadata: [np.float32(1)], "not pairs of features and labels"),
        (lambda dataset, mode, metadata: [(1, 2, 3)], "not pairs of features and labels"),
    ],
)
def test_feeds_that_return_something_else(feed: Feed, message: str, memory_reader: Any) -> None:
    with pytest.raises(UserError, match=message):
        batches_of(feed, memory_reader([0, 1]), 0, 2)


def test_data_that_shrinks_is_not_passed_over(memory_reader: Any) -> None:
    with pytest.raises(UserError, match=r"no samples \[5, 8\) any more"):
        batches_of(one_to_one, memory_reader(list(range(5))), 2, 8)


def test_feed_gets_the_mode_and_the_metadata(memory_reader: Any) -> None:
    heard: list[Any] = []

    def feed(dataset: Iterable[Any], mode: Mode, metadata: Any) -> Any:
        heard.append((mode, metadata))
        return []

    reader = memory_reader([1, 2])
    batches_of(feed, reader, 0, 2)
    assert heard == [(Mode.TRAINING, reader.metadata)]
