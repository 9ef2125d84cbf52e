"""A feed that takes columns is called once a batch, and its batches know their places as those of other feeds do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import elasticdl.torch
from elasticdl.data.custom_reader import adapt_custom_reader
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.column_batches import column_batches
from elasticdl.worker.batching.shard_batches import Stop
from elasticdl.worker.torch.input.columns import make_tensors
from elasticdl.worker.torch.input.model_inputs import ModelInputs
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard


@elasticdl.torch.batched
def feed(columns: Any, mode: Mode, metadata: Any) -> Any:
    return columns["x"].astype(np.float32), columns["x"] % 2


def batches_of(
    reader: Any, start: int, end: int, *, feed: Any = feed, batch_size: int = 4, skip_bad: bool = False
) -> list[Batch]:
    return list(
        column_batches(
            reader=reader,
            shard=Shard(lease_id=1, epoch=0, start=start, end=end),
            feed=feed,
            make=make_tensors(ModelInputs(lambda features: features).split(Mode.TRAINING)),
            mode=Mode.TRAINING,
            batch_size=batch_size,
            skip_bad=skip_bad,
            stop=Stop(),
        )
    )


def records(count: int) -> list[dict[str, int]]:
    return [{"x": number} for number in range(count)]


def test_column_batches_know_their_positions(memory_reader: Any) -> None:
    batches = batches_of(memory_reader(records(100)), 10, 20)
    assert [(b.position, b.size, b.last, b.atomic) for b in batches] == [
        (14, 4, False, False),
        (18, 4, False, False),
        (20, 2, True, False),
    ]
    assert torch.cat([b.features for b in batches]).tolist() == list(range(10, 20))
    assert batches[0].labels.tolist() == [0, 1, 0, 1]


class Columns:
    """A reader of one's own that has columns, and is never asked for records."""

    kind = "columns"

    def __init__(self, missing: int = 0) -> None:
        self._missing = missing

    def __len__(self) -> int:
        return 10

    def read(self, start: int, end: int) -> Iterator[Any]:
        raise AssertionError("records are not needed")

    def read_columns(self, start: int, end: int) -> dict[str, Any]:
        return {"x": np.arange(start, end - self._missing)}


def test_a_reader_with_columns() -> None:
    batches = batches_of(adapt_custom_reader(Columns(), "numbers"), 0, 10)
    assert torch.cat([b.features for b in batches]).tolist() == list(range(10))


def test_a_reader_that_gives_too_few() -> None:
    with pytest.raises(UserError, match=r"read_columns\(0, 4\) of Columns gave 3 values of 'x'"):
        batches_of(adapt_custom_reader(Columns(missing=1), "numbers"), 0, 10)


def test_a_trainer_calls_it_once_a_batch(make_definition: Any) -> None:
    sizes = []

    @elasticdl.torch.batched
    def counted(columns: Any, mode: Mode, metadata: Any) -> Any:
        sizes.append(len(columns["x"]))
        return feed(columns, mode, metadata)

    trainer = TorchTrainer(torch.nn.Linear(1, 1), make_definition(feed=counted))
    reader = adapt_custom_reader(Columns(), "numbers")
    shard = Shard(lease_id=1, epoch=0, start=0, end=10)
    found = list(trainer.batches(reader, [shard], mode=Mode.TRAINING, batch_size=4, max_bad_records=0))
    assert [batch.size for batch in found] == sizes == [4, 4, 2]


def test_bad_samples_that_are_not_allowed(memory_reader: Any) -> None:
    with pytest.raises(BadRecords):
        batches_of(memory_reader(records(20), corrupt=[(5, 8)]), 0, 20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_sample_is_in_a_batch_or_reported_as_bad(data: st.DataObject, memory_reader: Any) -> None:
    edges = sorted(data.draw(st.sets(st.integers(0, 30), max_size=6)))
    corrupt = list(zip(edges[::2], edges[1::2], strict=False))
    start = data.draw(st.integers(0, 29))
    end = data.draw(st.integers(start + 1, 30))
    size = data.draw(st.integers(1, 9))
    reader = memory_reader(records(30), corrupt=corrupt)
    batches = batches_of(reader, start, end, batch_size=size, skip_bad=True)
    seen: list[int] = []
    for batch in batches:
        for bad in batch.bad:
            seen += range(bad.start, bad.end)
        if batch.size:
            samples = [int(each) for each in batch.features]
            assert samples == list(range(batch.position - batch.size, batch.position))
            seen += samples
    assert seen == list(range(start, end))
    assert [batch.last for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert batches[-1].position == end


def test_feed_of_columns_with_text_is_refused(memory_reader: Any) -> None:
    def given_back(x: Any) -> Any:
        return {"x": x, "names": np.array(["a"] * len(x))}, x

    with pytest.raises(UserError, match="was given columns of 4 records, and gives"):
        batches_of(
            memory_reader(records(8)), 0, 8, feed=lambda columns, mode, metadata: given_back(columns["x"])
        )


def test_records_without_columns(memory_reader: Any) -> None:
    with pytest.raises(UserError, match="have none"):
        batches_of(memory_reader([b"a", b"b"]), 0, 2)
