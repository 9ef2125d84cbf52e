"""A server may be sent a bucket by a map that it has not seen, and never will: what it was sent goes all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from elasticdl.ps.core.array_bodies import unpack
from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.embedding.table import TableSpec, buckets_of
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.protocol.call_codec import read_push, rows_parts
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
SPEC = TableSpec(name="users", width=3)
BUCKET = 5
IDS = np.flatnonzero(buckets_of(np.arange(20_000), BUCKETS) == BUCKET)
PLAIN = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(1,) * BUCKETS)
FILLING = replace(PLAIN, version=4, migrating={BUCKET: 2}, migrating_since={BUCKET: 4})


def made(number: int) -> Store:
    store = Store(ServerSettings(), number=number)
    store.close(1)
    store.peers.update_routes(Routes(map=PLAIN))
    store.open()
    return store


def filled() -> Store:
    """A third server, which has a bucket and has not heard yet that it is to have it."""
    primary, third = made(0), made(2)
    initial = InitialModel(trainable={}, state={}, optimizer=SGD, tables=[SPEC])
    primary.state.bucket_store.initialize(np.ones(BUCKETS, np.bool_), initial)
    request = ps_pb2.PushRequest(worker="w", sequence=1, learning_rate=0.1, generation=1)
    request.rows.append(ps_pb2.RowsHead(table="users", ids=len(IDS), dtype="float32", width=3))
    body = memoryview(b"".join(rows_parts([IDS]) + rows_parts([np.ones((len(IDS), 3), np.float32)])))
    primary.workers.begin_push(read_push(request, body), message=request, body=(body,))
    primary.peers.update_routes(Routes(map=FILLING))
    pending = primary.state.peers.outboxes[2].after(0)
    assert pending is not None
    third.peers.receive(
        0,
        "",
        1,
        pending.entry,
        unpack(pending.entry.buckets),
        call_codec.decode_entry(pending.entry, memoryview(b"".join(pending.body))),
    )
    return third


def test_received_bucket_is_dropped_by_next_map_without_it() -> None:
    third = filled()
    assert third.master.status().rows == len(IDS)
    third.peers.update_routes(Routes(map=replace(PLAIN, version=5)))
    assert third.master.status().rows == 0


def test_received_bucket_is_kept_until_its_map_arrives() -> None:
    """Maps between the one that this server has and that one do not know of it yet; the sender sends it only once."""
    third = filled()
    for unaware in (2, 3):
        third.peers.update_routes(Routes(map=replace(PLAIN, version=unaware)))
        assert third.master.status().rows == len(IDS)
    third.peers.update_routes(Routes(map=FILLING))
    assert third.master.status().rows == len(IDS)
    third.peers.update_routes(Routes(map=replace(PLAIN, version=5)))
    assert third.master.status().rows == 0
