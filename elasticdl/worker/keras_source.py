"""A reader's shards as tf.data.Datasets of records: the data set that a feed is given."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.worker.keras_errors import program_error
from elasticdl.worker.keras_layout import TEXT, Layout
from elasticdl.worker.keras_records import ShardRecords
from elasticdl.worker.trainer import Shard

NUMBER = tf.TensorSpec([], tf.int64)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def plain(function: _Function) -> _Function:
    """For our functions in a pipeline: autograph, which is for conditions on tensors, would only cost time."""
    plain_function: _Function = tf.autograph.experimental.do_not_convert(function)
    return plain_function


class Source:
    """The shards that are being read, by numbers that can travel through TensorFlow."""

    def __init__(self, reader: Reader, *, skip_bad: bool) -> None:
        # What really went wrong when TensorFlow says that something did.
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
        types = [
            tf.string if column.dtype == TEXT else tf.as_dtype(column.dtype) for column in layout.columns
        ]

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
            more.set_shape([])
            for array, column in zip(arrays, layout.columns, strict=True):
                array.set_shape([None, *column.shape])
            return more, tuple(arrays)

        @plain
        def there_is_more(more: Any, _: Any) -> Any:
            return more

        @plain
        def one_by_one(_: Any, arrays: Any) -> Any:
            if layout.kind != "columns":
                return tf.data.Dataset.from_tensor_slices(arrays[0])
            names = [column.name for column in layout.columns]
            return tf.data.Dataset.from_tensor_slices(dict(zip(names, arrays, strict=True)))

        return endless().map(chunk).take_while(there_is_more).prefetch(1).flat_map(one_by_one)


def endless() -> Any:
    """0, 1, 2, …"""
    return tf.data.Dataset.range(np.iinfo(np.int64).max)
