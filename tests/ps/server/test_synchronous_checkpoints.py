"""A checkpoint in synchronous training: both copies of a bucket are frozen as the same, in either order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
DENSE = {f"d{number}": np.zeros(3, np.float32) for number in range(6)}
TABLE = TableSpec(name="t", width=2, initializer=Initializer(kind="zeros"))
IDS = np.arange(100)


class Pair:
    """Two servers, each with a copy of what the other has."""

    def __init__(self, token: str) -> None:
        self.stores = [Store(ServerSettings(grads_to_wait=10), number=number) for number in (0, 1)]
        self.servers = [ParameterServer(token=token) for _ in self.stores]
        self.addresses = {number: server.address for number, server in enumerate(self.servers)}
        self.routes = Routes(map=first_map(2, replicas=2), addresses=self.addresses)
        for store, server in zip(self.stores, self.servers, strict=True):
            store.close(1)
            store.peers.update_routes(self.routes)
            store.open()
            server.serve(store)
        self.client = ParameterClient(
            token=token, worker="w", generation=1, routes=lambda: self.routes, patience_seconds=60
        )

    def close(self) -> None:
        self.client.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def pair(token: str) -> Iterator[Pair]:
    made = Pair(token)
    yield made
    made.close()


def freeze(pair: Pair, token: str) -> None:
    async def inside() -> None:
        coordinator = Coordinator(token)
        try:
            await coordinator.freeze_all(pair.addresses, "barrier", 1, map_version=1, flush=True)
        finally:
            await coordinator.close()

    asyncio.run(inside())


@pytest.mark.parametrize("late", [0, 1])
def test_both_copies_are_the_same(pair: Pair, token: str, late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.client.initialize(DENSE, {}, SGD, [TABLE])
    pair.client.push(
        {name: -np.ones(3, np.float32) for name in DENSE},
        rows={"t": RowGradients(ids=IDS, values=-np.ones((len(IDS), 2), np.float32))},
        learning_rate=1.0,
        versions=pair.client.pull().versions,
    )
    slow, quick = pair.stores[late], pair.stores[1 - late]
    done = threading.Event()
    freeze_slow, freeze_quick = slow.master.freeze, quick.master.freeze

    def after(*given: Any, **more: Any) -> int:
        assert done.wait(60)
        return freeze_slow(*given, **more)

    def before(*given: Any, **more: Any) -> int:
        try:
            return freeze_quick(*given, **more)
        finally:
            done.set()

    monkeypatch.setattr(slow.master, "freeze", after)
    monkeypatch.setattr(quick.master, "freeze", before)
    freeze(pair, token)
    for store in pair.stores:
        copy = store.state.find_snapshot("barrier")
        assert copy.mask.all()
        assert copy.attributes["waiting"] == 0
        assert "pending" not in copy.groups
        for name in DENSE:
            np.testing.assert_array_equal(copy.groups["trainable"][name], 1.0, err_msg=name)
        out = np.empty((len(IDS), 2), np.float32)
        store.state.bucket_store.tables.gather_into("t", IDS, out, copy.tables["t"])
        np.testing.assert_array_equal(out, 1.0)
