"""Buckets are copied a few at a time, so that a push never waits behind many of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.protocol.call_codec import read_push
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
PLAIN = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(1,) * BUCKETS)
WANTED = 20


def migrating() -> tuple[Store, Any]:
    """A primary that is to copy many buckets to a third server, and what it tells that one."""
    store = Store(ServerSettings(), number=0)
    store.close(1)
    store.peers.update_routes(Routes(map=PLAIN))
    store.open()
    store.state.bucket_store.initialize(
        np.ones(BUCKETS, np.bool_), InitialModel(trainable={}, state={}, optimizer=SGD)
    )
    buckets = range(WANTED)
    store.peers.update_routes(
        Routes(
            map=replace(
                PLAIN,
                version=2,
                migrating=dict.fromkeys(buckets, 2),
                migrating_since=dict.fromkeys(buckets, 2),
            )
        )
    )
    return store, store.state.peers.outboxes[2]


def test_push_is_replicated_before_most_parts() -> None:
    store, outbox = migrating()
    request = ps_pb2.PushRequest(worker="w", sequence=1, learning_rate=1.0, generation=1)
    store.workers.begin_push(read_push(request, memoryview(b"")), message=request)
    assert outbox.after(outbox.last - 1).entry.HasField("push")
    assert outbox.last <= 3


def test_each_that_arrives_lets_another_go_until_all_are_there() -> None:
    store, outbox = migrating()
    for arrived in range(1, WANTED + 1):
        assert len(outbox) <= 2
        store.peers.acknowledge(outbox, arrived)
        assert len(store.master.status().filled) == arrived
    assert len(outbox) == 0
    assert sorted(bucket for bucket, _, _ in store.master.status().filled) == list(range(WANTED))
