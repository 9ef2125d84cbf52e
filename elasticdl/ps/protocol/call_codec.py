"""Calls of workers as they travel (ps.proto and the numbers behind it), and what they say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE
from elasticdl.ps.core.array_bodies import BodyReader, Mask, describe, lay_out, numbers, unpack
from elasticdl.ps.core.bucket_versions import of_wire
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array, raw_bytes
from elasticdl.ps.embedding.table import TRANSFER, Ids
from elasticdl.ps.storage.bucket_form import check_bucket
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, Push
from elasticdl.ps.storage.table_set import RowPart, of_config
from elasticdl.wire import ps_pb2

# Kinds of frames: what is asked for.
INITIALIZE, PULL, PUSH, PULL_ROWS, REPLICATE, ENTRY, EXPORT = range(1, 8)
NAMES = {INITIALIZE: "Initialize", PULL: "Pull", PUSH: "Push", PULL_ROWS: "PullRows", EXPORT: "Export"}


def read_initialize(request: ps_pb2.InitializeRequest, body: memoryview) -> InitialModel:
    """Raises `ValueError` if it is malformed, `UserError` if there can be no such table."""
    groups = BodyReader(body).groups(request.arrays)
    return InitialModel(
        trainable=groups.get(TRAINABLE, {}),
        state=groups.get(STATE, {}),
        optimizer=request.optimizer,
        tables=[of_config(config) for config in request.tables],
        array_buckets=_buckets_of(request.arrays),
    )


def _buckets_of(heads: Sequence[ps_pb2.ArrayHead]) -> dict[str, int]:
    """Returns the bucket of each array as the sender knows it. A bucket that does not exist would fail every later
    call.
    """
    for head in heads:
        if head.bucket >= BUCKETS:
            raise ValueError(f"{head.name} cannot be in bucket {head.bucket}: the last one is {BUCKETS - 1}")
    return {head.name: head.bucket for head in heads if head.bucket >= 0}


def read_push(request: ps_pb2.PushRequest, body: memoryview) -> Push:
    """The arrays are views of the body. Raises `ValueError` if it is malformed."""
    reader = BodyReader(body)
    groups = reader.groups(request.arrays)
    rows: dict[str, RowPart] = {}
    for head in request.rows:
        if head.table in rows:
            raise ValueError(f"the table {head.table} comes twice")
        ids = reader.take("int64", (head.ids,), what=f"the ids of {head.table}")
        rows[head.table] = RowPart(ids=ids, values=_take_gradients(reader, head))
    return Push(
        worker=request.worker,
        sequence=request.sequence,
        version=request.version,
        newer=of_wire(request.newer),
        learning_rate=request.learning_rate,
        gradients=groups.get(TRAINABLE, {}),
        state=groups.get(STATE, {}),
        rows=rows,
        lease_id=request.lease_id,
        position=request.position,
        batches=request.batches,
        generation=request.generation,
        not_finite=request.not_finite,
        buckets=unpack(request.buckets),
        array_buckets=_buckets_of(request.arrays),
        applied=unpack(request.applied_buckets) if request.applied_buckets else None,
    )


def _take_gradients(reader: BodyReader, head: ps_pb2.RowsHead) -> Array:
    if head.dtype not in TRANSFER:
        raise ValueError(f"gradients of the table {head.table} are of {head.dtype!r}")
    dtype = TRANSFER[head.dtype].name
    return reader.take(dtype, (head.ids, head.width), what=f"the gradients of {head.table}")


def read_ids(request: ps_pb2.PullRowsRequest, body: memoryview) -> list[tuple[str, Ids]]:
    """Raises `ValueError` if it is malformed."""
    reader = BodyReader(body)
    return [
        (head.table, reader.take("int64", (head.ids,), what=f"the ids of {head.table}"))
        for head in request.rows
    ]


def write_arrays(
    groups: Mapping[str, Mapping[str, Array]], buckets: Mapping[str, int]
) -> tuple[list[ps_pb2.ArrayHead], list[memoryview]]:
    heads, arrays = describe(groups, buckets)
    return heads, lay_out(arrays)


def decode_entry(entry: ps_pb2.Entry, body: memoryview) -> Callable[[BucketStore, Mask], None]:
    """Returns the effect of an entry of another server on the buckets here.

    Raises `ValueError`, `KeyError` or `TypeError` if it is malformed: before anything is changed.
    """
    what = entry.WhichOneof("what")
    if what == "push":
        push = read_push(entry.push, body)
        return lambda bucket_store, mask: bucket_store.replay(push, mask)
    if what == "initialize":
        initial = read_initialize(entry.initialize, body)

        def initialize(bucket_store: BucketStore, mask: Mask) -> None:
            bucket_store.initialize(mask, initial)

        return initialize
    if what == "fill":
        return _decode_fill(entry, body)
    return lambda bucket_store, mask: bucket_store.flush(mask) if what == "flush" else None


def optimizer_of(entry: ps_pb2.Entry) -> ps_pb2.OptimizerConfig | None:
    """The optimizer that an entry of another server comes with, if it comes with one."""
    if entry.HasField("initialize"):
        return entry.initialize.optimizer
    document = json.loads(entry.fill.attributes).get("optimizer") if entry.HasField("fill") else None
    return ps_pb2.OptimizerConfig(**document) if document else None


def _decode_fill(entry: ps_pb2.Entry, body: memoryview) -> Callable[[BucketStore, Mask], None]:
    attributes = json.loads(entry.fill.attributes)
    groups = BodyReader(body).groups(entry.fill.arrays)
    part, parts = entry.fill.part, entry.fill.parts
    check_bucket(attributes, groups, part=part, parts=parts)

    def fill(bucket_store: BucketStore, mask: Mask) -> None:
        for bucket in numbers(mask):
            if part:
                bucket_store.put_part(bucket, attributes, groups, part=part, parts=parts)
            else:
                bucket_store.put(bucket, attributes, groups, parts=parts)

    return fill


def rows_parts(parts: Sequence[Array]) -> list[memoryview]:
    """Arrays one behind the other, as one array."""
    found = [raw_bytes(part) for part in parts]
    missing = -sum(len(part) for part in found) % 16
    return [*found, memoryview(bytes(missing))] if missing else found
