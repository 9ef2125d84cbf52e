"""Entries that no server sends are rejected before anything of them is taken in."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import ReplicaDiverged
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, ServerSettings
from elasticdl.wire import ps_pb2
from tests.fuzz.server_messages import ADAGRAD, MODEL, TABLE, Entries, Message, initialize, push

EVERYTHING = np.ones(BUCKETS, np.bool_)


def fill() -> Message:
    """The first part of a bucket that has rows."""
    source, entries = random.Random(1), Entries()
    while True:
        found = entries.next(source, version=1, buckets=range(BUCKETS))
        if not found.head.fill.part and any(head.group == "rows:t" for head in found.head.fill.arrays):
            return found


def attributes(change: Callable[[dict[str, Any]], None]) -> Callable[[ps_pb2.Entry], None]:
    def apply(entry: ps_pb2.Entry) -> None:
        document = json.loads(entry.fill.attributes)
        change(document)
        entry.fill.attributes = json.dumps(document)

    return apply


def _part(entry: ps_pb2.Entry) -> None:
    entry.fill.part, entry.fill.parts = 3, 2


def _no_parts(entry: ps_pb2.Entry) -> None:
    entry.fill.parts = 0


def _rows_of_other_type(entry: ps_pb2.Entry) -> None:
    for head in entry.fill.arrays:
        head.dtype = {"float32": "int32"}.get(head.dtype, head.dtype)


@pytest.mark.parametrize(
    "damage",
    [
        attributes(lambda found: found.update(optimizer={"unknown": 1})),
        attributes(lambda found: found.update(optimizer=[1])),
        attributes(lambda found: found.update(version="many")),
        attributes(lambda found: found.update(last={"worker-0": [1]})),
        attributes(lambda found: found.update(fenced=7)),
        attributes(lambda found: found["tables"]["t"].pop("width")),
        attributes(lambda found: found["tables"]["t"].update(width=2**62)),
        _part,
        _no_parts,
        _rows_of_other_type,
    ],
)
def test_malformed_bucket_is_rejected_before_it_is_taken_in(damage: Callable[[ps_pb2.Entry], None]) -> None:
    message = fill()
    call_codec.decode_entry(message.head, memoryview(message.body))
    damage(message.head)
    with pytest.raises(ValueError, match=r"bucket|rows:t"):
        call_codec.decode_entry(message.head, memoryview(message.body))


@pytest.mark.parametrize("make", [push, initialize])
def test_array_in_a_bucket_that_does_not_exist_is_rejected(make: Callable[[random.Random], Message]) -> None:
    message = make(random.Random(1))
    message.head.arrays[0].bucket = BUCKETS
    read: Any = call_codec.read_push if make is push else call_codec.read_initialize
    with pytest.raises(ValueError, match="a cannot be in bucket 256: the last one is 255"):
        read(message.head, memoryview(message.body))


@pytest.mark.parametrize(
    ("arrays", "table", "message"),
    [
        ({"x": np.ones(4, np.float32)}, "t", "gradient of x is for no parameter"),
        ({"a": np.ones(3, np.float32)}, "t", "gradient of a has shape"),
        ({}, "u", "there is no table 'u'"),
    ],
)
def test_push_that_does_not_fit_the_replica_leaves_it_unchanged(
    arrays: dict[str, Any], table: str, message: str
) -> None:
    store = BucketStore(ServerSettings())
    store.initialize(EVERYTHING, InitialModel(trainable=MODEL, state={}, optimizer=ADAGRAD, tables=[TABLE]))
    sent = push(random.Random(1))
    sent.head.rows[0].table = table
    given = call_codec.read_push(sent.head, memoryview(sent.body))
    given = type(given)(**{**vars(given), "gradients": {**given.gradients, **arrays}})
    with pytest.raises(ReplicaDiverged, match=message):
        store.replay(given, EVERYTHING)
    assert [history.version for history in store.histories] == [0]
    assert store.tables.rows == 0
