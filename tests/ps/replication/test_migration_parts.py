"""A bucket of many rows is copied in parts, with pushes between them, and is the same to the bit when all are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elasticdl
from elasticdl.ps.core.array_bodies import mask_of, unpack
from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Ids, Table, TableSpec, buckets_of
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.protocol.call_codec import read_push, rows_parts
from elasticdl.ps.replication import peers
from elasticdl.ps.replication.replica_log import Outbox, Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras")
SPEC = TableSpec(name="users", width=3, admit_after=2, expire_after=40)
BUCKET = 5
IDS = np.flatnonzero(buckets_of(np.arange(200_000), BUCKETS) == BUCKET)
# Some come in every batch, some hardly ever.
OFTEN = 1 / np.arange(1, len(IDS) + 1)
PLAIN = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(1,) * BUCKETS)
FILLING = replace(PLAIN, version=2, migrating={BUCKET: 2}, migrating_since={BUCKET: 2})
# A row is 56 bytes with its slots.
SMALL = 1000


class Primary:
    """With its backup, which has everything at once, and a third server that is being filled."""

    def __init__(self, settings: ServerSettings, optimizer: ps_pb2.OptimizerConfig = ADAM) -> None:
        self.store = self._made(0, settings)
        self.third = self._made(2, settings)
        initial = InitialModel(trainable={}, state={}, optimizer=optimizer, tables=[SPEC])
        self.store.state.bucket_store.initialize(np.ones(BUCKETS, np.bool_), initial)
        self._sequence = 0
        self._draw = np.random.default_rng(7)

    def _made(self, number: int, settings: ServerSettings) -> Store:
        store = Store(settings, number=number)
        store.close(1)
        store.peers.update_routes(Routes(map=PLAIN))
        store.open()
        return store

    @property
    def outbox(self) -> Outbox:
        return self.store.state.peers.outboxes[2]

    def push(self) -> None:
        ids = self._draw.choice(IDS, 40, replace=False, p=OFTEN / OFTEN.sum())
        self.push_rows(ids, self._draw.normal(size=(40, 3)).astype(np.float32))

    def push_rows(self, ids: Ids, gradients: Array) -> None:
        self._sequence += 1
        request = ps_pb2.PushRequest(
            worker="w", sequence=self._sequence, learning_rate=0.1, generation=1, buckets=b""
        )
        request.rows.append(ps_pb2.RowsHead(table="users", ids=len(ids), dtype="float32", width=3))
        body = memoryview(b"".join([*rows_parts([ids]), *rows_parts([gradients])]))
        self.store.workers.begin_push(read_push(request, body), message=request, body=(body,))

    def update_routes(self, new: BucketMap) -> None:
        for store in (self.store, self.third):
            store.peers.update_routes(Routes(map=new))

    def deliver(self) -> Iterator[ps_pb2.Entry]:
        """What is in the outbox, entry by entry, each acknowledged when the caller has had a look at it."""
        while (
            pending := self.store.peers.next_entry(self.outbox, self.outbox.acknowledged, seconds=0)
        ) is not None:
            entry = ps_pb2.Entry.FromString(pending[1])
            body = memoryview(b"".join(pending[2]))
            self.third.peers.receive(
                0, "", 1, entry, unpack(entry.buckets), call_codec.decode_entry(entry, body)
            )
            yield entry
            self.store.peers.acknowledge(self.outbox, entry.position)


@pytest.fixture(params=[1, 2], ids=["asynchronous", "synchronous"])
def primary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Primary:
    monkeypatch.setattr(peers, "PART_BYTES", SMALL)
    made = Primary(ServerSettings(grads_to_wait=request.param, sync_version_tolerance=1_000_000))
    for _ in range(45):
        made.push()
    return made


def contents(store: Store) -> dict[str, Any]:
    """Of the bucket: rows by id, how often others were seen, the account of batches."""
    attributes, groups, _ = store.state.bucket_store.export(BUCKET)
    rows, waiting = groups["rows:users"], groups.get("waiting:users", {})
    ids = rows[f"{BUCKET}/ids"]
    order = np.argsort(ids)
    seen = np.argsort(rows[f"{BUCKET}/waiting_ids"])
    return {
        "account": attributes,
        "ids": ids[order].tolist(),
        **{kind: rows[f"{BUCKET}/{kind}"][order].tolist() for kind in ("values", "slots", "steps", "seen")},
        **{
            kind: rows[f"{BUCKET}/{kind}"][seen].tolist()
            for kind in ("waiting_ids", "waiting_counts", "waiting_seen")
        },
        "gradients": {kind: array.tolist() for kind, array in waiting.items()},
    }


def table_of(store: Store) -> dict[int, tuple[Any, Any]]:
    rows = store.state.bucket_store.tables._find("users").export(BUCKET)
    assert rows.slots is not None
    return dict(
        zip(rows.ids.tolist(), zip(rows.values.tolist(), rows.slots.tolist(), strict=True), strict=True)
    )


def test_with_pushes_between_the_parts_both_are_the_same_in_the_end(primary: Primary) -> None:
    before = set(contents(primary.store)["ids"])
    primary.update_routes(FILLING)
    parts, pushes = [], 0
    for entry in primary.deliver():
        if entry.HasField("fill"):
            parts.append(entry.fill.part)
            assert not primary.store.master.status().filled
            # Long enough for rows to be admitted and to expire between the first part and the last.
            for _ in range(5):
                primary.push()
        else:
            pushes += 1
    assert parts == list(range(len(parts)))
    assert len(parts) > 10
    assert pushes == 5 * len(parts)
    assert primary.store.master.status().filled == [(BUCKET, 2, "")]
    there, here = contents(primary.store), contents(primary.third)
    assert there["ids"]
    assert there["waiting_ids"]
    # Rows have come and gone meanwhile.
    assert set(there["ids"]) - before
    assert before - set(there["ids"])
    assert here == there


def test_no_more_than_two_parts_are_under_way(primary: Primary) -> None:
    primary.update_routes(FILLING)
    assert primary.outbox.last == 2
    primary.push()
    pending = primary.outbox.after(2)
    assert pending is not None
    assert pending.entry.HasField("push")
    for _ in primary.deliver():
        assert primary.outbox.migrations_in_flight <= 2


def test_aborted_migration_restarts_with_the_first_part(primary: Primary) -> None:
    primary.update_routes(FILLING)
    delivered = primary.deliver()
    assert [next(delivered).fill.part for _ in range(4)] == [0, 1, 2, 3]
    primary.update_routes(replace(PLAIN, version=3))
    primary.push()
    primary.update_routes(replace(FILLING, version=4, migrating_since={BUCKET: 4}))
    # Of the old copy nothing counts any more, of the new one everything.
    parts = [
        entry.fill.part
        for entry in delivered
        if entry.HasField("fill") and (unpack(entry.buckets) & mask_of([BUCKET])).any()
    ]
    assert parts == list(range(len(parts)))
    assert contents(primary.third) == contents(primary.store)


class Rooted(elasticdl.Optimizer):
    """That cannot do with a row whose gradients were all zero."""

    slots: Mapping[str, float] = {"sum": 0.0}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] += gradient * gradient
        with np.errstate(invalid="ignore"):
            return value - learning_rate * gradient / np.sqrt(slots["sum"])


def test_an_optimizer_of_the_users_own_sees_no_row_before_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PART_BYTES", SMALL)
    primary = Primary(ServerSettings(), to_config(Rooted()))
    for _ in range(2):
        primary.push_rows(IDS, np.ones((len(IDS), 3), np.float32))
    primary.update_routes(FILLING)
    delivered = primary.deliver()
    next(delivered)
    # Often enough for a row of their own.
    for _ in range(2):
        primary.push_rows(IDS, np.zeros((len(IDS), 3), np.float32))
    assert len(list(delivered)) > 10
    assert table_of(primary.third) == table_of(primary.store)


@given(
    ids=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), unique=True, max_size=200),
    parts=st.integers(1, 50),
)
@settings(deadline=None)
def test_each_row_and_each_sighting_is_in_one_part(ids: list[int], parts: int) -> None:
    table = Table(replace(SPEC, admit_after=2), make_optimizer(ADAM), buckets=2)
    half = len(ids) // 2
    for some in (ids[:half], ids):
        given = np.array(some, np.int64)
        table.update(given, np.ones((len(given), 3), np.float32), learning_rate=1.0, step=1)
    values: dict[int, list[float]] = {}
    for bucket in range(2):
        whole = table.export(bucket)
        found = [table.export_part(bucket, part, parts) for part in range(parts)]
        for kind in ("ids", "waiting_ids"):
            wanted = getattr(whole, kind)
            assert sorted(np.concatenate([getattr(part, kind) for part in found])) == sorted(wanted)
        for part in found:
            # As they are in the bucket. In the order of its index they would pile up in the index of the receiver.
            assert part.ids.tolist() == [
                each for each in whole.ids.tolist() if each in set(part.ids.tolist())
            ]
            values |= dict(zip(part.ids.tolist(), part.values.tolist(), strict=True))
    assert values == dict(zip(ids[:half], table.gather(ids[:half], create=False).tolist(), strict=True))


def test_there_are_no_more_parts_than_that() -> None:
    table = Table(SPEC, make_optimizer(ADAM), buckets=2)
    with pytest.raises(ValueError, match="no such part"):
        table.export_part(0, 3, 3)


def test_imported_row_is_no_longer_waiting_for_admission() -> None:
    table = Table(SPEC, make_optimizer(ADAM), buckets=1)
    table.update([7], np.ones((1, 3), np.float32), learning_rate=1.0, step=1)
    waiting = table.export(0).waiting_ids
    assert waiting is not None
    assert waiting.tolist() == [7]
    other = Table(SPEC, make_optimizer(ADAM), buckets=1)
    for step in (1, 2):
        other.update([7], np.ones((1, 3), np.float32), learning_rate=1.0, step=step)
    table.put(other.export(0))
    waiting = table.export(0).waiting_ids
    assert waiting is not None
    assert waiting.size == 0
    assert table.export(0).ids.tolist() == [7]
