"""Sends all shards through one tf.data.Dataset, each by itself: for feeds that shuffle, filter, repeat.

A thread of ours requests shards, which may take any time, and passes their numbers through a queue of TensorFlow's: a
wait there blocks none of TensorFlow's threads, of which a small machine has only one or two for everything, the
computation included. For each shard the data set of its records goes through the feed, is divided into batches, and
ends with a mark, so that a shard's end is known even if the feed dropped every record.

Nothing here refers back to the `Pipeline`, so that a discarded one is freed at once. TensorFlow's threads behind an
iterator call into Python: an iterator that lives until Python itself exits would wait for them forever.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.keras.input.feed_analysis import Feed, FeedSteps
from elasticdl.worker.keras.input.record_layout import Layout
from elasticdl.worker.keras.input.record_source import (
    NUMBER,
    Source,
    batches_ahead,
    close_queue,
    endless,
    is_plain,
    plain,
)
from elasticdl.worker.keras.input.shard_progress import ShardAccount
from elasticdl.worker.trainer import Batch, Shard

# In place of a shard's number: there are no more shards.
_NO_MORE = -1


class NotTraceable(Exception):
    """The feed cannot be made part of a function for any shard."""


class Pipeline(Iterator[Batch]):
    """`close` may be called from any thread, also while another one waits in `next`."""

    def __init__(
        self, feed: Feed, source: Source, shards: Iterator[Shard], *, first: int, batch_size: int
    ) -> None:
        layout = source.get(first).layout
        assert layout is not None
        self._feed = feed
        self._source = source
        self._closed = False
        self._account: tuple[int, ShardAccount] | None = None
        self._handout = _Handout(source, shards, first=first, layout=layout)
        dataset, steps = _dataset(feed, source, self._handout, layout, batch_size)
        self._in_order = steps.in_order
        self._iterator: Any = iter(dataset)
        threading.Thread(target=self._handout.run, name="shards", daemon=True).start()

    def __next__(self) -> Batch:
        while (iterator := self._iterator) is not None:
            try:
                mark, element = next(iterator)
            except StopIteration:
                self.close()
                break
            except tf.errors.OpError as error:
                if self._closed:
                    break
                self.close()
                raise self._explain(error) from None
            number = int(mark)
            batch = self._end(~number) if number < 0 else self._add(number, element)
            if batch is not None:
                return batch
        raise StopIteration

    def close(self) -> None:
        self._closed = True
        self._handout.close()
        self._iterator = None

    def _explain(self, error: BaseException) -> BaseException:
        return self._handout.failure or self._feed.explain(self._source.failure or error)

    def _account_of(self, number: int) -> ShardAccount:
        if self._account is None or self._account[0] != number:
            self._account = (number, ShardAccount(self._source.get(number), in_order=self._in_order))
        return self._account[1]

    def _add(self, number: int, element: Any) -> Batch | None:
        features, labels = self._feed.split(element)
        return self._account_of(number).add(features, labels, batch_length(features))

    def _end(self, number: int) -> Batch | None:
        batch = self._account_of(number).end()
        self._source.close(number)
        return batch


class _Handout:
    """Yields a shard each time the pipeline has finished one: none is taken before it is needed."""

    def __init__(self, source: Source, shards: Iterator[Shard], *, first: int, layout: Layout) -> None:
        self.failure: BaseException | None = None
        self._source = source
        self._shards = shards
        self._first: int | None = first
        self._layout = layout
        self._closed = False
        self._wanted = threading.Semaphore(0)
        self._queue = tf.queue.FIFOQueue(1, [tf.int64], [[]])

    def ask(self) -> Any:
        """Called by the pipeline, before it waits in `receive`."""
        self._wanted.release()
        return np.int64(0)

    def receive(self) -> Any:
        return self._queue.dequeue()

    def run(self) -> None:
        try:
            number = 0
            while number != _NO_MORE:
                self._wanted.acquire()
                if self._closed:
                    return
                number = self._next()
                self._queue.enqueue(number)
        except tf.errors.OpError:
            # The queue has been closed.
            return
        except BaseException as error:  # noqa: BLE001 - raised to the consumer of batches
            self.failure = error
            close_queue(self._queue)

    def close(self) -> None:
        self._closed = True
        self._wanted.release()
        close_queue(self._queue)

    def _next(self) -> int:
        if self._first is not None:
            number, self._first = self._first, None
            return number
        shard = next(self._shards, None)
        return _NO_MORE if shard is None else self._source.open(shard, self._layout)[0]


def _dataset(
    feed: Feed, source: Source, handout: _Handout, layout: Layout, batch_size: int
) -> tuple[Any, FeedSteps]:
    """Elements are a shard's number and a batch; at the end of the shard its complement and an empty batch."""
    steps = FeedSteps()

    def of_number(number: Any) -> Any:
        nonlocal steps
        samples, steps = feed.apply(source.dataset(number, layout))
        batches = samples.batch(batch_size)
        spec = batches.element_spec
        if not steps.reaches_source or not all(map(is_plain, tf.nest.flatten(spec))):
            raise NotTraceable

        @plain
        def marked(*element: Any) -> Any:
            return number, element if isinstance(spec, tuple) else element[0]

        nothing = tf.nest.map_structure(_without_samples, spec)
        end = tf.data.Dataset.from_tensors((tf.bitwise.invert(number), nothing))
        return batches.map(marked).concatenate(end)

    try:
        function = tf.function(of_number, autograph=False, input_signature=[NUMBER]).get_concrete_function()
    except UserError:
        raise
    except Exception as error:
        # Whatever a feed raises here; where it is more than being inside a function, it will raise it again.
        raise NotTraceable from error

    @plain
    def next_number(_: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(handout.ask, [], tf.int64)]):
            return handout.receive()

    @plain
    def is_shard(number: Any) -> Any:
        return tf.not_equal(number, _NO_MORE)

    @plain
    def of_shard(number: Any) -> Any:
        return function(number)

    batches = endless().map(next_number).take_while(is_shard).flat_map(of_shard)
    return batches.prefetch(batches_ahead(batches.element_spec, batch_size)), steps


def batch_length(features: Any) -> int:
    return int(tf.nest.flatten(features)[0].shape[0])


def _without_samples(spec: Any) -> Any:
    axes = [0] if spec.shape.rank is None else [axis or 0 for axis in spec.shape]
    return tf.zeros([0, *axes[1:]], spec.dtype)
