"""How long pushes wait while a bucket of a large table is migrated: the time of its longest part, copied and applied.

The whole bucket at once is measured too. The bucket has two million rows, as in a table of half a billion rows: more
than two servers on this benchmark's machine could hold, so only this bucket exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.parameter_servers import clicks
from benchmarks.report import Result, at_most_more
from elasticdl.ps.core.array_bodies import mask_of
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.table import TableSpec, buckets_of
from elasticdl.ps.replication.peers import PART_BYTES
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

_BUCKET = 0
# A wait for a part also covers one that is in flight.
_SECONDS = 0.5
_ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")


def measure(benchmark: str, *, quick: bool) -> Result:
    rows = 100_000 if quick else 2_000_000
    source = _bucket_store()
    _fill(source, rows)
    parts = source.parts(_BUCKET, PART_BYTES)
    in_parts = _copy(source, parts)
    (whole,) = _copy(source, 1)
    went = _timed(lambda: source.drop(mask_of([_BUCKET])))
    result = Result(
        benchmark=benchmark,
        case=f"longest wait while a bucket of {rows:,} rows is copied",
        unit="s",
        us=max(in_parts),
        note=f"{parts} parts, together {sum(in_parts):.2f} s; at once it would be {whole:.2f} s; dropping it here "
        f"afterwards takes {went:.2f} s",
    )
    return at_most_more(result, _SECONDS)


def _bucket_store() -> BucketStore:
    made = BucketStore(ServerSettings())
    table = TableSpec(name="categories", width=clicks.WIDTH)
    made.initialize(
        np.ones(BUCKETS, np.bool_), InitialModel(trainable={}, state={}, optimizer=_ADAGRAD, tables=[table])
    )
    return made


def _fill(bucket_store: BucketStore, rows: int) -> None:
    found = start = 0
    while found < rows:
        ids = np.arange(start, start + 8_000_000)
        start += len(ids)
        mine = ids[buckets_of(ids, BUCKETS) == _BUCKET][: rows - found]
        found += len(mine)
        values = np.full((len(mine), clicks.WIDTH), 0.1, np.float32)
        group = {f"{_BUCKET}/ids": mine, f"{_BUCKET}/values": values}
        bucket_store.tables.put({"rows:categories": group})


def _copy(source: BucketStore, parts: int) -> list[float]:
    """Seconds of each part, copied and applied."""
    target = _bucket_store()
    found = []
    for part in range(parts):

        def move(part: int = part) -> None:
            if part:
                target.put_part(_BUCKET, *source.export_part(_BUCKET, part, parts), part=part, parts=parts)
            else:
                attributes, groups, _ = source.export(_BUCKET, parts=parts)
                target.put(_BUCKET, attributes, groups, parts=parts)

        found.append(_timed(move))
    assert target.tables.rows == source.tables.rows
    return found


def _timed(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began
