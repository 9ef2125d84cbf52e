"""Makes batches of tensors from shards: the feed of a model definition in TensorFlow's input pipeline.

There are three ways, by what the feed does. If it makes each sample of one record, all shards are one stream of
records (`record_stream.py`). If it does more (shuffles, filters, repeats), each shard goes through it by itself, but
the feed is called only once for all of them, as part of a graph for any shard (`shard_dataset.py`), since building a
pipeline takes far longer than running it. And some feeds cannot be part of a graph: they look at values, or go
through their data set in Python. Those are called for each shard, and may do whatever can be done with a data
set.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator

import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.worker.keras.input.feed_analysis import Feed
from elasticdl.worker.keras.input.record_source import NUMBER, Source
from elasticdl.worker.keras.input.record_stream import NotAStream, RecordStream
from elasticdl.worker.keras.input.shard_dataset import NotTraceable, Pipeline, batch_length
from elasticdl.worker.keras.input.shard_progress import ShardAccount
from elasticdl.worker.trainer import Batch, Shard

_AHEAD = 2


class BatchStream(Iterator[Batch]):
    """The batches of some shards. `close` may be called from any thread, also while another waits in `next`.

    It is closed when nothing refers to it any more, and before Python ends.
    """

    def __init__(
        self, feed: Feed, reader: Reader, shards: Iterable[Shard], *, batch_size: int, skip_bad: bool
    ) -> None:
        self._feed = feed
        self._source = Source(reader, skip_bad=skip_bad)
        self._shards = iter(shards)
        self._batch_size = batch_size
        self._closed = threading.Event()
        self._batches: Iterator[Batch] | None = None
        self._close: Callable[[], object] = self._closed.set

    def __next__(self) -> Batch:
        while self._batches is None:
            batch = self._start()
            if batch is not None:
                return batch
        return next(self._batches)

    def close(self) -> None:
        self._closed.set()
        self._close()

    def _start(self) -> Batch | None:
        """Needs a shard with a record, to learn how records look; those without one are done at once."""
        shard = None if self._closed.is_set() else next(self._shards, None)
        if shard is None:
            raise StopIteration
        number, records = self._source.open(shard)
        try:
            readable = records.has_records()
        except Exception as error:
            raise self._source.explain(error) from error
        if not readable:
            self._source.close(number)
            return ShardAccount(records, in_order=True).end()
        self._batches = self._open(number)
        if self._closed.is_set():
            self._close()
        return None

    def _open(self, number: int) -> Iterator[Batch]:
        for kind in (RecordStream, Pipeline):
            with contextlib.suppress(NotAStream, NotTraceable):
                batches = kind(
                    self._feed, self._source, self._shards, first=number, batch_size=self._batch_size
                )
                self._close = weakref.finalize(self, batches.close)
                return batches
        generator = _shard_by_shard(
            self._feed, self._source, self._shards, number, self._batch_size, self._closed
        )
        self._close = weakref.finalize(self, _end_generator, generator, self._closed)
        return generator


def _end_generator(generator: Generator[Batch, None, None], closed: threading.Event) -> None:
    closed.set()
    with contextlib.suppress(ValueError):
        # Another thread is in it, and will find that it is closed.
        generator.close()


def _shard_by_shard(
    feed: Feed,
    source: Source,
    shards: Iterator[Shard],
    number: int,
    batch_size: int,
    closed: threading.Event,
) -> Generator[Batch, None, None]:
    layout = source.get(number).layout
    assert layout is not None
    records_of = tf.function(
        lambda number: source.dataset(number, layout), autograph=False, input_signature=[NUMBER]
    ).get_concrete_function()
    while not closed.is_set():
        records = source.get(number)
        try:
            dataset, steps = feed.apply(records_of(tf.constant(number, tf.int64)))
        except Exception as error:
            raise feed.explain(source.failure or error, when_called=True) from error
        account = ShardAccount(records, in_order=steps.in_order)
        try:
            for element in dataset.batch(batch_size).prefetch(_AHEAD):
                features, labels = feed.split(element)
                batch = account.add(features, labels, batch_length(features))
                if batch is not None:
                    yield batch
                if closed.is_set():
                    return
        except Exception as error:
            raise feed.explain(source.failure or error) from error
        if not records.asked:
            raise feed.ignores_its_data()
        last = account.end()
        if last is not None:
            yield last
        source.close(number)
        shard = next(shards, None)
        if shard is None:
            return
        number, _ = source.open(shard, layout)
