"""Which feeds keep the order of the records, one sample each, is read from the data set they return."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.worker.keras.input.feed_analysis import FeedSteps, steps_between

ONE_BY_ONE: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda d: d,
    "map": lambda d: d.map(lambda x: x + 1),
    "parallel map": lambda d: d.map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE),
    "deterministic map": lambda d: d.map(lambda x: x + 1, num_parallel_calls=2, deterministic=True),
    "prefetch": lambda d: d.prefetch(2),
    "options": lambda d: d.with_options(tf.data.Options()),
    "several": lambda d: d.map(lambda x: x).prefetch(1).map(lambda x: x, num_parallel_calls=2),
}

IN_ORDER: dict[str, Callable[[Any], Any]] = {
    "cache in memory": lambda d: d.cache(),
    "zip of itself": lambda d: tf.data.Dataset.zip((d.map(lambda x: x), d)),
    "running sum": lambda d: d.scan(tf.constant(0, tf.int64), lambda total, x: (total + x, total + x)),
    "cardinality": lambda d: d.apply(tf.data.experimental.assert_cardinality(10)),
    "map that goes through all": lambda d: d.map(lambda x: d.reduce(x, tf.add)),
    "parallel map that does": lambda d: d.map(lambda x: d.reduce(x, tf.add), num_parallel_calls=2),
}


def loosened(dataset: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = False
    return dataset.with_options(options)


NOT_IN_ORDER: dict[str, Callable[[Any], Any]] = {
    "shuffle": lambda d: d.shuffle(3),
    "filter": lambda d: d.filter(lambda x: x > 2),
    "repeat": lambda d: d.repeat(2),
    "take": lambda d: d.take(2),
    "skip": lambda d: d.skip(2),
    "shard": lambda d: d.shard(2, 0),
    "flat_map": lambda d: d.flat_map(tf.data.Dataset.from_tensors),
    "interleave": lambda d: d.interleave(tf.data.Dataset.from_tensors),
    "parallel interleave": lambda d: d.interleave(tf.data.Dataset.from_tensors, num_parallel_calls=2),
    "map in any order": lambda d: d.map(lambda x: x, num_parallel_calls=2, deterministic=False),
    "options for any order": loosened,
    "zip with another": lambda d: tf.data.Dataset.zip((d, tf.data.Dataset.range(3))),
    "concatenate": lambda d: d.concatenate(d),
    "ignore_errors": lambda d: d.ignore_errors(),
    "take_while": lambda d: d.take_while(lambda x: x < 3),
    "unique": lambda d: d.unique(),
    "batch and unbatch": lambda d: d.batch(2).unbatch(),
    "map after shuffle": lambda d: d.shuffle(3).map(lambda x: x),
}

BATCHES: dict[str, Callable[[Any], Any]] = {
    "batch": lambda d: d.batch(2),
    "parallel batch": lambda d: d.batch(2, num_parallel_calls=2),
    "padded_batch": lambda d: d.padded_batch(2),
    "ragged_batch": lambda d: d.ragged_batch(2),
    "rebatch": lambda d: d.batch(2).rebatch(3),
    "map of batches": lambda d: d.batch(2).map(lambda x: x).prefetch(1),
    "zip of batches": lambda d: tf.data.Dataset.zip((d.batch(2), d.batch(2))),
}


@pytest.fixture
def source() -> Any:
    return tf.data.Dataset.range(10)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_one_by_one(source: Any, name: str) -> None:
    found = steps_between(ONE_BY_ONE[name](source), source)
    assert found == FeedSteps(reaches_source=True, in_order=True, one_by_one=True)


@pytest.mark.parametrize("name", IN_ORDER)
def test_in_order(source: Any, name: str) -> None:
    assert steps_between(IN_ORDER[name](source), source) == FeedSteps(reaches_source=True, in_order=True)


@pytest.mark.parametrize("name", NOT_IN_ORDER)
def test_not_in_order(source: Any, name: str) -> None:
    assert steps_between(NOT_IN_ORDER[name](source), source) == FeedSteps(reaches_source=True)


@pytest.mark.parametrize("name", BATCHES)
def test_batched_feed_is_recognized(source: Any, name: str) -> None:
    assert steps_between(BATCHES[name](source), source) == FeedSteps(reaches_source=True, batched=True)


@pytest.mark.parametrize("way", ["cache", "snapshot"])
def test_stored_in_files(source: Any, tmp_path: Any, way: str) -> None:
    steps = steps_between(getattr(source, way)(str(tmp_path)), source)
    assert steps.stored


def test_made_of_something_else(source: Any) -> None:
    assert not steps_between(tf.data.Dataset.range(3).map(lambda x: x), source).reaches_source


def test_inside_a_function(source: Any) -> None:
    found = []

    def graph() -> Any:
        inner = tf.data.Dataset.range(4)
        found.append(steps_between(inner.cache().map(lambda x: x), inner))
        found.append(steps_between(inner.cache("file").shuffle(2), inner))
        return inner

    tf.function(graph).get_concrete_function()
    assert found == [
        FeedSteps(reaches_source=True, in_order=True),
        FeedSteps(reaches_source=True, stored=True),
    ]
