"""The fast way for feeds that make each sample of one record: all shards as one stream of records.

Nothing has to be set up for a shard then, and TensorFlow may put the feed's last step and the batching together.
What batches must not do is cross shards, so the records of a shard are filled up to whole batches with copies of
its last one, and these are cut off the batch again. Since everything stays in order, which batch is whose need not
travel through TensorFlow: the thread that reads writes it down (the plan), and who takes batches goes by that.

As in `shard_dataset.py`, a wait for a shard holds none of TensorFlow's threads, and nothing here refers back to the
`RecordStream`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.data.reader import Record
from elasticdl.errors import UserError
from elasticdl.worker.keras.input.feed_analysis import Feed
from elasticdl.worker.keras.input.record_chunks import ShardRecords
from elasticdl.worker.keras.input.record_layout import Layout
from elasticdl.worker.keras.input.record_source import (
    Source,
    batches_ahead,
    close_queue,
    endless,
    is_plain,
    one_by_one,
    plain,
    shaped,
    tensor_types,
)
from elasticdl.worker.keras.input.shard_progress import ShardAccount
from elasticdl.worker.trainer import Batch, Shard


class NotAStream(Exception):
    """The feed does more than to make each sample of one record."""


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A batch of so many samples of a shard; with None, the end of the shard."""

    account: ShardAccount
    size: int | None


class RecordStream(Iterator[Batch]):
    """`close` may be called from any thread, also while another one waits in `next`."""

    def __init__(
        self, feed: Feed, source: Source, shards: Iterator[Shard], *, first: int, batch_size: int
    ) -> None:
        layout = source.get(first).layout
        assert layout is not None
        self._feed = feed
        self._source = source
        self._batch_size = batch_size
        self._closed = False
        self._pump = _Pump(source, shards, first=first, layout=layout, batch_size=batch_size)
        try:
            samples, steps = feed.apply(one_by_one(self._pump.chunks(), layout))
        except UserError:
            raise
        except Exception as error:
            # It may have to look at values; or it cannot work at all, and will raise that again.
            raise NotAStream from error
        if self._pump.asked or not steps.one_by_one:
            raise NotAStream
        batches = samples.batch(batch_size, drop_remainder=True)
        if not all(map(is_plain, tf.nest.flatten(batches.element_spec))):
            raise NotAStream
        self._iterator: Any = iter(batches.prefetch(batches_ahead(batches.element_spec, batch_size)))
        # The pipeline begins to ask for records only when it is asked for a batch, and a batch is planned only when
        # its records are read: so the first one is taken before it is planned. There is one, for the first shard
        # has a record.
        self._taken: Any = None
        self._begun = False
        self._pump.open()

    def __next__(self) -> Batch:
        if not self._begun:
            self._begun = True
            self._taken = self._take()
        while not self._closed:
            planned = self._pump.plan.get()
            if planned is None:
                break
            if isinstance(planned, BaseException):
                self.close()
                raise planned
            batch = self._next_of(planned)
            if batch is not None:
                return batch
        self.close()
        raise StopIteration

    def close(self) -> None:
        self._closed = True
        self._pump.close()
        self._iterator = self._taken = None

    def _next_of(self, planned: _Planned) -> Batch | None:
        if planned.size is None:
            return planned.account.end()
        element, self._taken = self._taken, None
        if element is None:
            element = self._take()
        if element is None:
            return None
        if planned.size < self._batch_size:
            element = tf.nest.map_structure(lambda tensor: tensor[: planned.size], element)
        features, labels = self._feed.split(element)
        return planned.account.add(features, labels, planned.size)

    def _take(self) -> Any:
        """A whole batch; None if this has been closed, or if the reading failed, which the plan tells."""
        iterator = self._iterator
        try:
            return None if iterator is None else next(iterator)
        except (tf.errors.OpError, StopIteration) as error:
            if self._closed or self._pump.failed:
                return None
            self.close()
            if isinstance(error, StopIteration):
                error = UserError("The feed ended before the records it is given.")
            raise self._feed.explain(error) from None


class _Pump:
    """Reads chunk after chunk, each when the pipeline wants it, and plans the batches they will make."""

    def __init__(
        self, source: Source, shards: Iterator[Shard], *, first: int, layout: Layout, batch_size: int
    ) -> None:
        self.plan: queue.SimpleQueue[_Planned | BaseException | None] = queue.SimpleQueue()
        self.failed = False
        # How many chunks the pipeline has wanted.
        self.asked = 0
        self._source = source
        self._shards = shards
        self._first: int | None = first
        self._layout = layout
        self._batch_size = batch_size
        self._opened = False
        self._closed = False
        self._wanted = threading.Semaphore(0)
        self._queue = tf.queue.FIFOQueue(1, [tf.bool, *tensor_types(layout)])
        # The shard at hand: its number and records, the chunk that comes next, the samples of an unfinished batch.
        self._shard: tuple[int, ShardRecords, ShardAccount] | None = None
        self._chunk = 0
        self._unfinished = 0
        self._last: Record = None

    def open(self) -> None:
        """Opens the stream; before, there are no chunks."""
        self._opened = True
        threading.Thread(target=self._run, name="records", daemon=True).start()

    def chunks(self) -> Any:
        @plain
        def receive(index: Any) -> Any:
            with tf.control_dependencies([tf.numpy_function(self._ask, [index], tf.int64)]):
                more, *arrays = self._queue.dequeue()
            return shaped(more, arrays, self._layout)

        return endless().map(receive)

    def close(self) -> None:
        self._closed = True
        self._wanted.release()
        close_queue(self._queue)
        self.plan.put(None)

    def _ask(self, index: Any) -> Any:
        self.asked += 1
        if not self._opened or int(index) != self.asked - 1:
            raise RuntimeError(
                "A stream of records can be gone through only once, and not while a feed is called."
            )
        self._wanted.release()
        return np.int64(0)

    def _run(self) -> None:
        try:
            more = True
            while more:
                self._wanted.acquire()
                if self._closed:
                    return
                records = self._next()
                more = bool(records)
                self._queue.enqueue([more, *self._layout.arrays(records)])
        except tf.errors.OpError:
            # The queue has been closed.
            return
        except BaseException as error:  # noqa: BLE001 - raised to the consumer of batches
            self.failed = True
            self.plan.put(error)
            close_queue(self._queue)

    def _next(self) -> list[Record]:
        """The next records for the pipeline; none behind the last shard."""
        while self._shard is not None or self._open_next():
            assert self._shard is not None
            number, shard, account = self._shard
            try:
                records = shard.chunk(self._chunk)
            except Exception as error:
                raise self._source.explain(error) from error
            self._chunk += 1
            if records:
                self._last = records[-1]
                whole, self._unfinished = divmod(self._unfinished + len(records), self._batch_size)
                for _ in range(whole):
                    self.plan.put(_Planned(account=account, size=self._batch_size))
                return records
            missing = -self._unfinished % self._batch_size
            if missing:
                self.plan.put(_Planned(account=account, size=self._unfinished))
            self.plan.put(_Planned(account=account, size=None))
            self._source.close(number)
            self._shard = None
            if missing:
                return [self._last] * missing
        self.plan.put(None)
        return []

    def _open_next(self) -> bool:
        if self._first is not None:
            number, records = self._first, self._source.get(self._first)
            self._first = None
        else:
            shard = next(self._shards, None)
            if shard is None:
                return False
            number, records = self._source.open(shard, self._layout)
        self._shard = (number, records, ShardAccount(records, in_order=True))
        self._chunk = self._unfinished = 0
        return True
