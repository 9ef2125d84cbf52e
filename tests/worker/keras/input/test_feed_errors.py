"""Errors in a feed are reported in the terms of its author, with their lines of code."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition, ProgramError
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Shard


@pytest.fixture
def fail(
    make_definition: Callable[..., ModelDefinition], memory_reader: Callable[..., Reader]
) -> Callable[[Any], UserError]:
    """Runs a feed that must fail, and gives the error."""

    def make(feed: Any) -> UserError:
        trainer = KerasTrainer(definition=make_definition(feed=feed), model=tf.keras.Sequential())
        reader = memory_reader([str(i).encode() for i in range(8)])
        shard = Shard(lease_id=0, epoch=0, start=0, end=8)
        with pytest.raises(UserError) as caught:
            list(trainer.batches(reader, [shard], mode=Mode.TRAINING, batch_size=4, max_bad_records=0))
        return caught.value

    return make


def number(record: Any) -> Any:
    return tf.strings.to_number(record, tf.int32)


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        (lambda dataset, *_: None, "returns nothing"),
        (lambda dataset, *_: [1, 2], "returns a list"),
        (lambda dataset, *_: dataset.map(lambda r: (r, r)).batch(2), "returns batches"),
        (lambda dataset, *_: dataset.map(number), "returns samples of the form"),
        (lambda dataset, *_: dataset.map(lambda r: (r, r, r)), "of the form a tuple of 3"),
        (lambda dataset, *_: tf.data.Dataset.from_tensors((1, 2)), "does not read the data set it is given"),
        (lambda dataset, *_: dataset.map(lambda r: (r, r)).cache("file"), "stores its samples in files"),
    ],
)
def test_invalid_return_value_of_feed_is_rejected(
    fail: Callable[[Any], UserError], feed: Any, words: str
) -> None:
    error = fail(feed)
    assert words in error.message
    assert error.hint
    assert not isinstance(error, ProgramError)


def test_fails_when_it_is_called(fail: Callable[[Any], UserError]) -> None:
    def feed(dataset: Any, mode: Mode, metadata: Any) -> Any:
        return dict[str, Any]()["absent"]

    error = fail(feed)
    assert "KeyError: 'absent'" in str(error)
    assert "test_feed_errors.py" in str(error)
    assert "elasticdl/worker" not in str(error)


def test_fails_when_its_functions_become_graphs(fail: Callable[[Any], UserError]) -> None:
    def parse(record: Any) -> Any:
        return record + 1, record

    error = fail(lambda dataset, *_: dataset.map(parse))
    assert "test_feed_errors.py" in str(error)
    assert "in parse" in str(error)
    assert "string" in error.message
    assert "site-packages" not in str(error)


def test_python_code_fails_on_a_record(fail: Callable[[Any], UserError]) -> None:
    def convert(record: bytes) -> Any:
        if record == b"5":
            raise LookupError(f"no place for {record!r}")
        return record

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Any:
        return dataset.map(lambda record: (tf.numpy_function(convert, [record], tf.string), 0))

    error = fail(feed)
    assert isinstance(error, ProgramError)
    assert "LookupError: no place for b'5'" in error.summary
    assert "in convert" in error.traceback
    assert "script_ops.py" not in error.traceback
    assert "function_node" not in str(error)


def test_operation_fails_on_a_record(fail: Callable[[Any], UserError]) -> None:
    features = {"label": tf.io.FixedLenFeature([], tf.int64)}
    error = fail(lambda dataset, *_: dataset.map(lambda r: (tf.io.parse_single_example(r, features), 0)))
    assert isinstance(error, ProgramError)
    assert "parse" in error.message
    assert "node" not in error.message


def test_samples_of_different_shapes(fail: Callable[[Any], UserError]) -> None:
    error = fail(lambda dataset, *_: dataset.map(lambda r: (tf.zeros([number(r)]), 0)))
    assert "same shape" in error.hint
    assert isinstance(error, ProgramError)


def test_reader_of_the_users_fails(
    make_definition: Callable[..., ModelDefinition], memory_reader: Any
) -> None:
    class Broken(type(memory_reader([]))):  # type: ignore[misc]
        def read(self, start: int, end: int) -> Any:
            yield from super().read(start, min(end, 2))
            raise ConnectionError("gone")

    trainer = KerasTrainer(
        definition=make_definition(feed=lambda dataset, *_: dataset.map(lambda r: (r, r))),
        model=tf.keras.Sequential(),
    )
    reader = Broken(origin="my://data", records=[b"x"] * 600)
    shard = Shard(lease_id=0, epoch=0, start=0, end=600)
    with pytest.raises(ProgramError, match="Reading my://data failed: gone"):
        list(trainer.batches(reader, [shard], mode=Mode.TRAINING, batch_size=4, max_bad_records=0))
