"""From shards to batches of tensors: TensorFlow's input pipeline around the feed of a model definition.

The pipeline is one tf.data.Dataset. A thread of ours asks for shards, which may take any time, and passes their
numbers through a queue of TensorFlow's: a wait there holds none of TensorFlow's threads, of which a small machine
has only one or two for everything, computing included. For each shard the data set of its records goes through
the feed, is cut in batches, and ends with a mark, so that a shard's end is known even if the feed let nothing pass.

The feed is called once, as part of a function for any shard, since building a pipeline takes far longer than
running it. Some feeds cannot be part of a function (they look at values, or go through their data set in Python);
those are called anew for each shard.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.jobs.errors import UserError
from elasticdl.worker.keras_account import ShardAccount
from elasticdl.worker.keras_feed import Feed, FeedSteps
from elasticdl.worker.keras_source import NUMBER, Source, endless, plain
from elasticdl.worker.trainer import Batch, Shard

# Batches to have ready: enough to bridge the change to the next shard, within a bound for the memory they take.
_MOST_AHEAD, _LEAST_AHEAD = 8, 2
_BYTES_AHEAD = 64 << 20

# In place of a shard's number: there are no more shards.
_NO_MORE = -1


class BatchStream(Iterator[Batch]):
    """The batches of some shards. `close` may be called from any thread, also while another one waits in `next`."""

    def __init__(
        self, feed: Feed, reader: Reader, shards: Iterable[Shard], *, batch_size: int, skip_bad: bool
    ) -> None:
        self._feed = feed
        self._source = Source(reader, skip_bad=skip_bad)
        self._shards = iter(shards)
        self._batch_size = batch_size
        self._closed = False
        self._pipeline: _Pipeline | None = None
        self._batches = self._run()

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        self._closed = True
        if self._pipeline is not None:
            self._pipeline.close()

    def _run(self) -> Iterator[Batch]:
        for shard in self._shards:
            number, records = self._source.open(shard)
            if records.has_records():
                break
            # Nothing to learn from yet how records look.
            yield from _given(ShardAccount(records, in_order=True).end())
            self._source.close(number)
        else:
            return
        try:
            pipeline = _Pipeline(
                self._feed, self._source, self._shards, first=number, batch_size=self._batch_size
            )
        except NotTraceable:
            yield from self._one_by_one(number)
            return
        self._pipeline = pipeline
        if self._closed:
            pipeline.close()
        yield from pipeline

    def _one_by_one(self, number: int) -> Iterator[Batch]:
        """The feed called for each shard. It then may do whatever can be done with a data set."""
        layout = self._source.get(number).layout
        assert layout is not None
        records_of = tf.function(
            lambda number: self._source.dataset(number, layout), autograph=False, input_signature=[NUMBER]
        ).get_concrete_function()
        while not self._closed:
            records = self._source.get(number)
            try:
                dataset, steps = self._feed.apply(records_of(tf.constant(number, tf.int64)))
            except Exception as error:
                raise self._feed.explain(self._source.failure or error, when_called=True) from error
            account = ShardAccount(records, in_order=steps.in_order)
            try:
                for element in dataset.batch(self._batch_size).prefetch(_LEAST_AHEAD):
                    features, labels = self._feed.split(element)
                    yield from _given(account.add(features, labels, _size(features)))
                    if self._closed:
                        return
            except Exception as error:
                raise self._feed.explain(self._source.failure or error) from error
            if not records.asked:
                raise self._feed.ignores_its_data()
            yield from _given(account.end())
            self._source.close(number)
            shard = next(self._shards, None)
            if shard is None:
                return
            number, _ = self._source.open(shard, layout)


class NotTraceable(Exception):
    """The feed cannot be made part of a function for any shard."""


class _Pipeline(Iterator[Batch]):
    """All shards through one data set."""

    def __init__(
        self, feed: Feed, source: Source, shards: Iterator[Shard], *, first: int, batch_size: int
    ) -> None:
        self._feed = feed
        self._source = source
        self._shards = shards
        self._first: int | None = first
        self._layout = source.get(first).layout
        self._batch_size = batch_size
        self._closed = False
        self._failure: BaseException | None = None
        self._steps = FeedSteps()
        self._queue = tf.queue.FIFOQueue(1, [tf.int64], [[]])
        self._wanted = threading.Semaphore(0)
        self._account: tuple[int, ShardAccount] | None = None
        try:
            self._of_shard = tf.function(
                self._shard_dataset, autograph=False, input_signature=[NUMBER]
            ).get_concrete_function()
        except UserError:
            raise
        except Exception as error:
            # Whatever a feed raises here; where it is more than being inside a function, it will raise it again.
            raise NotTraceable from error
        self._iterator = iter(self._dataset())
        threading.Thread(target=self._hand_out, name="shards", daemon=True).start()

    def __next__(self) -> Batch:
        while not self._closed:
            try:
                mark, element = next(self._iterator)
            except StopIteration:
                break
            except tf.errors.OpError as error:
                if self._closed:
                    break
                if self._failure is not None:
                    raise self._failure from None
                raise self._feed.explain(self._source.failure or error) from None
            number = int(mark)
            batch = self._end(~number) if number < 0 else self._add(number, element)
            if batch is not None:
                return batch
        raise StopIteration

    def close(self) -> None:
        self._closed = True
        self._wanted.release()
        self._queue.close(cancel_pending_enqueues=True)

    # -- the data set ----------------------------------------------------------------------------------------

    def _shard_dataset(self, number: Any) -> Any:
        assert self._layout is not None
        dataset, self._steps = self._feed.apply(self._source.dataset(number, self._layout))
        batches = dataset.batch(self._batch_size)
        spec = batches.element_spec
        # The mark at the end is a batch without samples, and only of plain tensors is it clear how to make one.
        if not self._steps.reaches_source or not all(map(_is_plain, tf.nest.flatten(spec))):
            raise NotTraceable

        @plain
        def marked(*element: Any) -> Any:
            return number, element if isinstance(spec, tuple) else element[0]

        nothing = tf.nest.map_structure(_without_samples, spec)
        end = tf.data.Dataset.from_tensors((tf.bitwise.invert(number), nothing))
        return batches.map(marked).concatenate(end)

    def _dataset(self) -> Any:
        @plain
        def next_number(_: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(self._ask, [], tf.int64)]):
                return self._queue.dequeue()

        @plain
        def is_shard(number: Any) -> Any:
            return tf.not_equal(number, _NO_MORE)

        @plain
        def of_shard(number: Any) -> Any:
            return self._of_shard(number)

        batches = endless().map(next_number).take_while(is_shard).flat_map(of_shard)
        return batches.prefetch(_ahead(batches.element_spec, self._batch_size))

    def _ask(self) -> Any:
        self._wanted.release()
        return np.int64(0)

    # -- the thread that asks for shards ---------------------------------------------------------------------

    def _hand_out(self) -> None:
        """One shard each time the pipeline has come to the end of one: none is taken before it is wanted."""
        try:
            number = 0
            while number != _NO_MORE:
                self._wanted.acquire()
                if self._closed:
                    return
                number = self._next_number()
                self._queue.enqueue(number)
        except tf.errors.OpError:
            # The queue has been closed.
            return
        except BaseException as error:  # noqa: BLE001 - raised to whoever waits for a batch
            self._failure = error
            self._queue.close(cancel_pending_enqueues=True)

    def _next_number(self) -> int:
        if self._first is not None:
            number, self._first = self._first, None
            return number
        shard = next(self._shards, None)
        return _NO_MORE if shard is None else self._source.open(shard, self._layout)[0]

    # -- batches ---------------------------------------------------------------------------------------------

    def _account_of(self, number: int) -> ShardAccount:
        if self._account is None or self._account[0] != number:
            self._account = (number, ShardAccount(self._source.get(number), in_order=self._steps.in_order))
        return self._account[1]

    def _add(self, number: int, element: Any) -> Batch | None:
        features, labels = self._feed.split(element)
        return self._account_of(number).add(features, labels, _size(features))

    def _end(self, number: int) -> Batch | None:
        batch = self._account_of(number).end()
        self._source.close(number)
        return batch


def _given(batch: Batch | None) -> list[Batch]:
    return [] if batch is None else [batch]


def _size(features: Any) -> int:
    return int(tf.nest.flatten(features)[0].shape[0])


def _is_plain(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.dtype not in (tf.variant, tf.resource)


def _without_samples(spec: Any) -> Any:
    axes = [0] if spec.shape.rank is None else [axis or 0 for axis in spec.shape]
    return tf.zeros([0, *axes[1:]], spec.dtype)


def _ahead(spec: Any, batch_size: int) -> int:
    size = 0
    for leaf in tf.nest.flatten(spec):
        known = [axis for axis in leaf.shape[1:] if axis] if leaf.shape.rank else []
        size += batch_size * int(np.prod(known, dtype=np.int64)) * leaf.dtype.size
    return int(np.clip(_BYTES_AHEAD // max(size, 1), _LEAST_AHEAD, _MOST_AHEAD))
