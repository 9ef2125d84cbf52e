"""All kinds of records reach the feed as tensors: bytes, rows of text, columns of any type and shape."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.data.reader import Metadata, Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Shard


@pytest.fixture
def read(make_definition: Callable[..., ModelDefinition]) -> Callable[..., list[Any]]:
    def make(reader: Reader, feed: Any, size: int = 100) -> list[Any]:
        trainer = KerasTrainer(definition=make_definition(feed=feed), model=tf.keras.Sequential())
        shard = Shard(lease_id=0, epoch=0, start=0, end=len(reader))
        batches = trainer.batches(reader, [shard], mode=Mode.PREDICTION, batch_size=size, max_bad_records=0)
        return [batch.features for batch in batches]

    return make


def test_byte_records_reach_the_feed(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    records = [b"", b"\x00\xff", "ü".encode()]
    (batch,) = read(memory_reader(records), lambda dataset, *_: dataset)
    assert batch.numpy().tolist() == records


def test_text_rows_reach_the_feed(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    reader = memory_reader([["1", "é"], ["2", ""]], kind="row")
    (batch,) = read(reader, lambda dataset, *_: dataset.map(lambda row: {"a": row[0], "b": row[1]}))
    assert batch["a"].numpy().tolist() == [b"1", b"2"]
    assert batch["b"].numpy().tolist() == ["é".encode(), b""]


def test_rows_of_different_length(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    reader = memory_reader([["1", "2"], ["3"]], kind="row")
    with pytest.raises(UserError, match="has 1 columns where 2 are expected"):
        read(reader, lambda dataset, *_: dataset)


def test_typed_columns_reach_the_feed(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    rows = [
        {"id": i, "text": f"t{i}", "raw": bytes([i]), "share": None if i == 1 else i / 2} for i in range(3)
    ]
    metadata = Metadata(
        column_names=("id", "text", "raw", "share"), column_dtypes=("int32", "str", "bytes", "float32")
    )
    (batch,) = read(memory_reader(rows, kind="columns", metadata=metadata), lambda dataset, *_: dataset)
    assert batch["id"].dtype == tf.int32
    assert batch["text"].numpy().tolist() == [b"t0", b"t1", b"t2"]
    assert batch["raw"].numpy().tolist() == [b"\x00", b"\x01", b"\x02"]
    assert np.array_equal(batch["share"], np.array([0, np.nan, 1], np.float32), equal_nan=True)


def test_columns_without_metadata(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    rows = [{"x": np.float64(i), "name": "n"} for i in range(3)]
    (batch,) = read(memory_reader(rows, kind="columns"), lambda dataset, *_: dataset)
    assert batch["x"].dtype == tf.float64
    assert batch["name"].dtype == tf.string


def test_values_whose_shapes_differ(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    rows = [{"picture": np.full((1 + i % 3, 2), i, np.float32), "id": i} for i in range(20)]

    def feed(dataset: Any, *_: Any) -> Any:
        return dataset.map(lambda row: {"id": row["id"], "sum": tf.reduce_sum(row["picture"])})

    (batch,) = read(memory_reader(rows, kind="columns"), feed)
    assert batch["id"].numpy().tolist() == list(range(20))
    assert batch["sum"].numpy().tolist() == [2 * (1 + i % 3) * i for i in range(20)]


def test_empty_cell_of_a_type_without_a_value_for_it(
    read: Callable[..., Any], memory_reader: Callable[..., Reader]
) -> None:
    reader = memory_reader([{"id": 1}, {"id": None}], kind="columns")
    with pytest.raises(UserError, match="Column id has an empty cell"):
        read(reader, lambda dataset, *_: dataset)


def test_reader_that_ends_too_early(read: Callable[..., Any], memory_reader: Callable[..., Reader]) -> None:
    class Longer(type(memory_reader([]))):  # type: ignore[misc]
        def __len__(self) -> int:
            return 5

    with pytest.raises(UserError, match="ended before sample 2"):
        read(Longer(origin="memory", records=[b"a", b"b"]), lambda dataset, *_: dataset)
