"""A server whose backup hangs goes on answering: calls that wait for the backup do not block other calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.core.server_errors import CallCancelled
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_channel
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
ROUTES = Routes(map=first_map(2), addresses={1: "127.0.0.1:1"}, incarnations={0: "a", 1: "b"})
MANY = 40


def primary() -> Store:
    """Of a backup that never responds."""
    store = Store(ServerSettings(), number=0, incarnation="a")
    store.close(1)
    store.peers.update_routes(ROUTES)
    store.open()
    initial = InitialModel(trainable={"x": np.zeros(2, np.float32)}, state={}, optimizer=SGD)
    store.state.bucket_store.initialize(np.ones(BUCKETS, np.bool_), initial)
    return store


@pytest.fixture
def served(token: str) -> Iterator[tuple[Store, Any]]:
    store, server = primary(), ParameterServer(token=token)
    server.serve(store)
    with open_channel(server.address, token) as channel:
        yield store, ParameterServerStub(channel)  # type: ignore[no-untyped-call]
    server.stop()


def calls(stub: Any) -> Iterator[Any]:
    """Of all kinds that wait for a backup, forever."""
    for number in range(MANY):
        yield stub.Fence.future(ps_pb2.FenceRequest(worker=f"worker-{number}", generation=1))
        yield stub.Flush.future(ps_pb2.FlushRequest(generation=1))
        yield stub.Freeze.future(ps_pb2.FreezeRequest(name=f"barrier-{number}", generation=1, flush=True))


def test_server_with_hanging_backup_answers_status_calls(served: tuple[Store, Any]) -> None:
    store, stub = served
    waiting = list(calls(stub))
    refused = threading.Event()
    for call in waiting:
        call.add_done_callback(lambda _: refused.set())
    assert stub.ServerStatus(ps_pb2.ServerStatusRequest(), timeout=60).ready
    # Some wait until the map has no such backup any more; the others are refused before.
    assert refused.wait(60)
    store.peers.update_routes(Routes(map=first_map([0], version=2), incarnations={0: "a"}))
    assert {call.code() for call in waiting} == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


def test_cancelled_calls_free_their_slots(served: tuple[Store, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store, stub = served
    has_place, fence = threading.Event(), store.master.fence

    def seen(worker: str, **more: Any) -> Any:
        if worker == "another":
            has_place.set()
        return fence(worker, **more)

    monkeypatch.setattr(store.master, "fence", seen)
    for call in list(calls(stub)):
        call.cancel()

    def gets_place() -> bool:
        call = stub.Fence.future(ps_pb2.FenceRequest(worker="another", generation=1))
        while not (has_place.wait(0.001) or call.done()):
            pass
        call.cancel()
        return has_place.is_set()

    assert any(gets_place() for _ in range(10_000))


def test_cancelled_call_is_not_carried_out() -> None:
    store = primary()
    with pytest.raises(CallCancelled):
        store.master.freeze("barrier", generation=1, flush=True, wanted=lambda: False)
    assert not store.master.status().frozen
    with pytest.raises(CallCancelled):
        store.master.flush(generation=1, wanted=lambda: False)
    with pytest.raises(CallCancelled):
        store.master.fence("worker-0", generation=1, wanted=lambda: False)
