"""Makes batches of shards where the feed takes many records at once: `batched` of `elasticdl.data.feeds`.

What is done for every sample costs microseconds each, in Python and in TensorFlow's pipelines. That counts where a
model needs hardly more than that for a sample, as click models do. A feed that takes columns is called once a batch: it
is given an array a column and gives tensors or arrays of as many samples, in the same order. So where a batch lies in
its shard is known without counting.

Readers that have their data in columns give slices of them (`Reader.columns`); records of others are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from elasticdl.data.reader import BadRange, BadRecords, Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.shard_batches import Stop
from elasticdl.worker.trainer import Batch, Shard

# Features and labels of what a feed has given for so many records.
Make = Callable[[Any, int], tuple[Any, Any]]


def column_batches(
    *,
    reader: Reader,
    shard: Shard,
    feed: Callable[..., Any],
    make: Make,
    mode: Mode,
    batch_size: int,
    skip_bad: bool,
    stop: Stop,
) -> Iterator[Batch]:
    """The batches of one shard: the samples of each are [position - size, position). One ends where bad samples
    begin; those are reported with the next, or, at the very end, with an empty one.
    """
    bad: list[BadRange] = []
    position, limit = shard.start, shard.end
    while position < shard.end and not stop.wanted:
        end = min(position + batch_size, limit)
        try:
            columns = _columns(reader, position, end)
        except BadRecords as error:
            found = error.bad
            if not skip_bad or found.end <= position or found.start >= end:
                raise
            if found.start > position:
                # First what lies before.
                limit = found.start
                continue
            stopped = min(found.end, shard.end)
            bad.append(BadRange(start=position, end=stopped, where=found.where, reason=found.reason))
            position, limit = stopped, shard.end
            continue
        features, labels = make(feed(columns, mode, reader.metadata), end - position)
        size, position = end - position, end
        if position == limit:
            limit = shard.end
        yield Batch(
            shard=shard,
            position=position,
            atomic=False,
            last=position == shard.end,
            size=size,
            features=features,
            labels=labels,
            bad=tuple(bad),
        )
        bad = []
        if position == shard.end:
            return
    if not stop.wanted:
        yield Batch(shard=shard, position=shard.end, atomic=False, last=True, size=0, bad=tuple(bad))


def _columns(reader: Reader, start: int, end: int) -> Mapping[str, Any]:
    columns = reader.columns(start, end)
    if columns is not None:
        return columns
    records = list(reader.read(start, end))
    if not all(isinstance(record, Mapping) for record in records):
        raise UserError(
            f"The feed takes columns (`batched`), and the records of {reader.origin} have none.",
            hint="Parquet files and readers of your own whose records are dicts have; for others write a feed for "
            "single records.",
        )
    return {name: np.asarray([record[name] for record in records]) for name in records[0]}


def structured(fed: Any, leaf: Callable[[Any], Any]) -> Any:
    """Converts every array of a feed's result."""
    if isinstance(fed, Mapping):
        return {name: structured(each, leaf) for name, each in fed.items()}
    if isinstance(fed, (tuple, list)):
        return type(fed)(structured(each, leaf) for each in fed)
    return leaf(fed)


def not_fitting(size: int, found: str) -> UserError:
    return UserError(
        f"The feed was given columns of {size} records, and gives {found}.",
        hint="It must give tensors or NumPy arrays with as many samples as there are records: "
        "(features, labels), each an array, or a dict or tuple of arrays.",
    )
