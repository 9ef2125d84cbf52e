"""A reader's shards as tf.data.Datasets of records: the data set that a feed is given."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.worker.keras.errors import program_error
from elasticdl.worker.keras.input.record_chunks import ShardRecords
from elasticdl.worker.keras.input.record_layout import TEXT, Layout
from elasticdl.worker.trainer import Shard

NUMBER = tf.TensorSpec([], tf.int64)

# Batches to have ready: enough to bridge the change to the next shard, within a bound for the memory they take.
_MOST_AHEAD, _LEAST_AHEAD = 8, 2
_BYTES_AHEAD = 64 << 20

_Function = TypeVar("_Function", bound=Callable[..., Any])


def plain(function: _Function) -> _Function:
    """Marks a function of ours for a pipeline: autograph, which is for conditions on tensors, would only cost time."""
    plain_function: _Function = tf.autograph.experimental.do_not_convert(function)
    return plain_function


class Source:
    """The shards that are being read, by numbers that can travel through TensorFlow."""

    def __init__(self, reader: Reader, *, skip_bad: bool) -> None:
        # The original error behind one of TensorFlow's.
        self.failure: BaseException | None = None
        self._reader = reader
        self._skip_bad = skip_bad
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, ShardRecords] = {}

    def open(self, shard: Shard, layout: Layout | None = None) -> tuple[int, ShardRecords]:
        records = ShardRecords(self._reader, shard, skip_bad=self._skip_bad, lock=self._lock, layout=layout)
        number = next(self._numbers)
        self._open[number] = records
        return number, records

    def get(self, number: int) -> ShardRecords:
        return self._open[number]

    def close(self, number: int) -> None:
        self._open.pop(number, None)

    def explain(self, error: BaseException) -> BaseException:
        if isinstance(error, Exception):
            # A UserError stays what it is: a reader may be the user's own, or have good words already.
            return program_error(f"Reading {self._reader.origin} failed", error)
        return error

    def dataset(self, number: Any, layout: Layout) -> Any:
        """The records of the shard whose number is in a tensor."""
        types = tensor_types(layout)

        def read(number: Any, index: Any) -> list[Any]:
            try:
                records = self._open[int(number)].chunk(int(index))
                return [np.bool_(len(records) > 0), *layout.arrays(records)]
            except BaseException as error:
                # TensorFlow would keep only its text.
                self.failure = self.failure or self.explain(error)
                raise

        @plain
        def chunk(index: Any) -> Any:
            more, *arrays = tf.numpy_function(read, [number, index], [tf.bool, *types])
            return shaped(more, arrays, layout)

        return one_by_one(endless().map(chunk), layout, ahead=1)


def tensor_types(layout: Layout) -> list[Any]:
    return [tf.string if column.dtype == TEXT else tf.as_dtype(column.dtype) for column in layout.columns]


def shaped(more: Any, arrays: list[Any], layout: Layout) -> tuple[Any, tuple[Any, ...]]:
    """A chunk that came from Python, where TensorFlow does not see its shapes."""
    more.set_shape([])
    for array, column in zip(arrays, layout.columns, strict=True):
        array.set_shape([None, *column.shape])
    return more, tuple(arrays)


def one_by_one(chunks: Any, layout: Layout, *, ahead: int = 0) -> Any:
    """The records of chunks, up to the one that says that there is no more."""

    @plain
    def there_is_more(more: Any, _: Any) -> Any:
        return more

    @plain
    def records(_: Any, arrays: Any) -> Any:
        if layout.kind != "columns":
            return tf.data.Dataset.from_tensor_slices(arrays[0])
        names = [column.name for column in layout.columns]
        return tf.data.Dataset.from_tensor_slices(dict(zip(names, arrays, strict=True)))

    found = chunks.take_while(there_is_more)
    return (found.prefetch(ahead) if ahead else found).flat_map(records)


def endless() -> Any:
    """0, 1, 2, …"""
    return tf.data.Dataset.range(np.iinfo(np.int64).max)


def close_queue(queue: Any) -> None:
    """Ends all waiting for it. The holder of the last reference may be in the middle of making a graph, where
    this would become a part of that.
    """
    if tf.executing_eagerly():
        queue.close(cancel_pending_enqueues=True)
    else:
        threading.Thread(target=queue.close, args=(True,), name="closing", daemon=True).start()


def is_plain(spec: Any) -> bool:
    """Whether a spec has only plain tensors, of which a batch with fewer samples, or none, can be made."""
    return isinstance(spec, tf.TensorSpec) and spec.dtype not in (tf.variant, tf.resource)


def batches_ahead(spec: Any, batch_size: int) -> int:
    """Returns how many batches of that kind to prefetch."""
    size = 0
    for leaf in tf.nest.flatten(spec):
        known = [axis for axis in leaf.shape[1:] if axis] if leaf.shape.rank else []
        size += batch_size * int(np.prod(known, dtype=np.int64)) * leaf.dtype.size
    return int(np.clip(_BYTES_AHEAD // max(size, 1), _LEAST_AHEAD, _MOST_AHEAD))
