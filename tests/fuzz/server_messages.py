"""Well-formed messages to a parameter server, and what can be wrong with them.

Damaged bytes mostly fail in the parser. So most messages here are well-formed, and one of their values is not what it
should be: that reaches the code behind.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.ps.core.array_bodies import describe, lay_out, pack
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, ServerSettings
from elasticdl.wire import ps_pb2
from tests.fuzz.mutations import mutated

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
TABLE = TableSpec(name="t", width=4)
MODEL = {"a": np.ones(4, np.float32), "b": np.ones((3, 5), np.float32)}
_IDS = 20
_NUMBERS = (0, 1, 2, -1, 3, 255, 256, 2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, 0.5, float("nan"), float("inf"), -1e300)
_JSON: tuple[Any, ...] = (None, True, 0, -1, 2**70, 1.5, "", "x", [], {}, [1, 2], {"a": {}})


@dataclass(kw_only=True)
class Message:
    kind: int
    head: Any
    body: bytes

    def damaged(self, source: random.Random) -> tuple[bytes, bytes]:
        """Head and body as they are to be sent."""
        body, way = self.body, source.randrange(6)
        if way == 0:
            body = mutated(body, source)
        elif way == 1:
            body = bytes(source.choice((0x00, 0x7F, 0xFF)) for _ in body)
        elif way in (2, 3, 4):
            for _ in range(source.randint(1, 2)):
                _spoil(self.head, source)
        head = self.head.SerializeToString()
        return (mutated(head, source) if way == 5 else head), body


def _spoil(message: Any, source: random.Random) -> None:
    """Changes one value somewhere in a message."""
    holders = _fields(message)
    if not holders:
        return
    holder, field = source.choice(holders)
    if field.label == field.LABEL_REPEATED:
        values = getattr(holder, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            values["x"] = source.choice(_FLOATS)
        elif source.random() < 0.5:
            values.extend(list(values)[:1])
        elif field.message_type is None and len(values):
            values[source.randrange(len(values))] = _value(field, source)
        else:
            del values[:1]
    else:
        setattr(holder, field.name, _value(field, source, getattr(holder, field.name)))


def _fields(message: Any) -> list[tuple[Any, Any]]:
    found = []
    for field in message.DESCRIPTOR.fields:
        if field.label == field.LABEL_REPEATED:
            found.append((message, field))
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for each in getattr(message, field.name):
                    found += _fields(each)
        elif field.message_type is not None:
            if message.HasField(field.name):
                found += _fields(getattr(message, field.name))
        elif field.containing_oneof is None or message.HasField(field.name):
            found.append((message, field))
    return found


def _value(field: Any, source: random.Random, now: Any = None) -> Any:
    if field.type == field.TYPE_STRING:
        if field.name == "attributes":
            return _spoiled_json(now or "{}", source)
        names = ("", "a", "b", "t", "x", "worker-0", "float32", "int64", "float16", "bfloat16", "bool")
        groups = (
            "trainable",
            "state",
            "slot:accumulator",
            "rows:t",
            "waiting:t",
            "0/ids",
            "0/values",
            "0/slots",
        )
        return source.choice(names + groups)
    if field.type == field.TYPE_BYTES:
        bits = (b"", b"\x00", bytes(BUCKETS // 8), b"\xff" * (BUCKETS // 8), source.randbytes(BUCKETS // 8))
        return source.choice(bits)
    if field.type == field.TYPE_BOOL:
        return not now
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return source.choice(_FLOATS)
    number = source.choice(_NUMBERS)
    if field.type in (field.TYPE_UINT32, field.TYPE_UINT64):
        return number & (2**32 - 1)
    return number if field.type == field.TYPE_INT64 else max(-(2**31), min(number, 2**31 - 1))


def _spoiled_json(text: str, source: random.Random) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Spoiled before.
        return text
    holder: Any = document
    # One value at any depth.
    while isinstance(holder, dict) and holder:
        key = source.choice(sorted(holder))
        if isinstance(holder[key], dict) and holder[key] and source.random() < 0.6:
            holder = holder[key]
        elif source.random() < 0.3:
            del holder[key]
            break
        else:
            holder[key] = source.choice(_JSON)
            break
    return source.choice(
        (json.dumps(document),) * 8 + (json.dumps(source.choice(_JSON)), text[:-3], "[" * 100_000)
    )


def _body(arrays: list[Any]) -> bytes:
    return b"".join(lay_out(arrays))


def initialize(source: random.Random) -> Message:
    heads, arrays = describe({"trainable": MODEL, "state": {}}, {})
    table = ps_pb2.TableConfig(
        name=TABLE.name, width=TABLE.width, initializer="uniform", seed=1, admit_after=1
    )
    request = ps_pb2.InitializeRequest(generation=1, arrays=heads, optimizer=ADAGRAD, tables=[table])
    return Message(kind=call_codec.INITIALIZE, head=request, body=_body(arrays))


def _ids(source: random.Random) -> Any:
    return np.array(source.sample(range(1000), _IDS), np.int64)


def push(source: random.Random) -> Message:
    heads, arrays = describe({"trainable": {name: value * 0 for name, value in MODEL.items()}}, {})
    ids = _ids(source)
    request = ps_pb2.PushRequest(
        worker=f"worker-{source.randrange(1, 100)}",
        sequence=source.randrange(1, 1000),
        learning_rate=0.1,
        arrays=heads,
        rows=[ps_pb2.RowsHead(table=TABLE.name, ids=len(ids), dtype="float32", width=TABLE.width)],
        generation=1,
    )
    return Message(
        kind=call_codec.PUSH,
        head=request,
        body=_body([*arrays, ids, np.full((len(ids), TABLE.width), 0.1, np.float32)]),
    )


def pull(source: random.Random) -> Message:
    request = ps_pb2.PullRequest(known_version=source.choice((-1, 0, 5)), generation=1)
    return Message(kind=call_codec.PULL, head=request, body=b"")


def pull_rows(source: random.Random) -> Message:
    ids = _ids(source)
    rows = [ps_pb2.RowsHead(table=TABLE.name, ids=len(ids))]
    request = ps_pb2.PullRowsRequest(generation=1, rows=rows, dtype="float32")
    return Message(kind=call_codec.PULL_ROWS, head=request, body=_body([ids]))


def export(source: random.Random) -> Message:
    request = ps_pb2.PullRowsRequest(generation=1, rows=[ps_pb2.RowsHead(table=TABLE.name)])
    return Message(kind=call_codec.EXPORT, head=request, body=b"")


CALLS: tuple[Callable[[random.Random], Message], ...] = (initialize, push, push, pull, pull_rows, export)


def _filled_store() -> BucketStore:
    """What a primary would have: a model, and some rows in each bucket."""
    store = BucketStore(ServerSettings())
    everything = np.ones(BUCKETS, np.bool_)
    store.initialize(everything, InitialModel(trainable=MODEL, state={}, optimizer=ADAGRAD, tables=[TABLE]))
    sent = push(random.Random(1))
    given = call_codec.read_push(sent.head, memoryview(sent.body))
    store.apply(given, store.histories_of(given, everything))
    return store


class Entries:
    """Those of a primary, numbered."""

    def __init__(self) -> None:
        self._store = _filled_store()
        self._position = 0

    def next(self, source: random.Random, *, version: int, buckets: range) -> Message:
        kinds = (self._push, self._initialize, self._fill, self._fill, self._fill, self._fence, self._other)
        bucket = source.choice(buckets)
        message = source.choice(kinds)(source, bucket)
        self._position += 1
        mask = np.zeros(BUCKETS, np.bool_)
        mask[buckets] = True
        if message.head.HasField("fill"):
            mask[:] = False
            mask[bucket] = True
        message.head.position, message.head.version, message.head.buckets = (
            self._position,
            version,
            pack(mask),
        )
        return message

    @staticmethod
    def _push(source: random.Random, bucket: int) -> Message:
        sent = push(source)
        return Message(kind=call_codec.ENTRY, head=ps_pb2.Entry(push=sent.head), body=sent.body)

    @staticmethod
    def _initialize(source: random.Random, bucket: int) -> Message:
        sent = initialize(source)
        return Message(kind=call_codec.ENTRY, head=ps_pb2.Entry(initialize=sent.head), body=sent.body)

    def _fill(self, source: random.Random, bucket: int) -> Message:
        parts, part = source.choice(((1, 0), (1, 0), (2, 0), (2, 1)))
        if part:
            attributes, groups = self._store.export_part(bucket, part, parts)
            buckets: dict[str, int] = {}
        else:
            attributes, groups, buckets = self._store.export(bucket, parts=parts)
            attributes["fenced"] = ["worker-7"]
        heads, arrays = describe(groups, buckets)
        fill = ps_pb2.Fill(attributes=json.dumps(attributes), arrays=heads, part=part, parts=parts)
        return Message(kind=call_codec.ENTRY, head=ps_pb2.Entry(fill=fill), body=_body(arrays))

    @staticmethod
    def _fence(source: random.Random, bucket: int) -> Message:
        entry = ps_pb2.Entry(fence=source.choice(("worker-5", "worker-6", "")))
        return Message(kind=call_codec.ENTRY, head=entry, body=b"")

    @staticmethod
    def _other(source: random.Random, bucket: int) -> Message:
        entry = source.choice(
            (ps_pb2.Entry(flush=ps_pb2.Flush()), ps_pb2.Entry(handover=ps_pb2.Handover()), ps_pb2.Entry())
        )
        return Message(kind=call_codec.ENTRY, head=entry, body=b"")
