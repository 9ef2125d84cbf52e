"""The master freezes, saves and fences all servers together."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from elasticdl.ps.checkpoint.array_file import read_array_file
from elasticdl.ps.checkpoint.resharding import merge
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
MODEL = {name: np.full(size, size, np.float32) for name, size in (("a", 50), ("b", 40), ("c", 5))}


def by_number(servers: Any) -> dict[int, str]:
    return dict(enumerate(servers.addresses))


def run(token: str, use: Any) -> Any:
    async def inside() -> Any:
        coordinator = Coordinator(token)
        try:
            return await use(coordinator)
        finally:
            await coordinator.close()

    return asyncio.run(inside())


def test_a_checkpoint_of_all_servers(start_servers: Any, token: str, tmp_path: Path) -> None:
    servers = start_servers(3)
    client = servers.client()
    client.initialize(MODEL, {"mean": np.zeros(2)}, SGD)

    async def use(coordinator: Coordinator) -> Any:
        versions = await coordinator.freeze_all(by_number(servers), "barrier-1", 1)
        # Training goes on between the snapshot and the files.
        await asyncio.to_thread(client.push, MODEL, learning_rate=1.0)
        files, _ = await coordinator.save_all(by_number(servers), "barrier-1", tmp_path)
        await coordinator.release_all(by_number(servers), "barrier-1")
        return versions, files

    versions, files = run(token, use)
    assert versions == {0: 0, 1: 0, 2: 0}
    assert [file.name for file in files] == ["ps-0-of-3.edl", "ps-1-of-3.edl", "ps-2-of-3.edl"]
    for file in files:
        content = (tmp_path / file.name).read_bytes()
        assert (file.bytes, file.crc32) == (len(content), zlib.crc32(content))
    whole = merge([read_array_file(tmp_path / file.name) for file in files])
    assert whole.groups["trainable"].keys() == MODEL.keys()
    for name, value in MODEL.items():
        np.testing.assert_array_equal(whole.groups["trainable"][name], value)
        np.testing.assert_array_equal(client.pull().trainable[name], 0 * value)
    with pytest.raises(Exception, match="no snapshot"):
        client.pull(frozen="barrier-1")


def test_the_last_batch_that_all_have(start_servers: Any, token: str) -> None:
    servers = start_servers(3)
    client = servers.client("worker-4")
    client.initialize(MODEL, {}, SGD)
    for batch in (1, 2, 3):
        client.push(MODEL, learning_rate=0.1, lease_id=9, position=10 * batch, batches=batch)
    # Dies while it pushes the fourth: two servers have it, one has not.
    fourth = Push(
        worker="worker-4",
        sequence=4,
        version=3,
        learning_rate=0.1,
        gradients={},
        lease_id=9,
        position=40,
        batches=4,
        generation=1,
    )
    for store in servers.stores[:2]:
        store.workers.push(fourth)

    async def use(coordinator: Coordinator) -> Any:
        last = await coordinator.fence_all(by_number(servers), "worker-4", 1)
        never = await coordinator.fence_all(by_number(servers), "worker-5", 1)
        return last, never

    last, never = run(token, use)
    assert (last.sequence, last.lease_id, last.position, last.batches) == (3, 9, 30, 3)
    assert (never.sequence, never.lease_id) == (0, 0)
    assert list(last.buckets) == list(never.buckets) == list(range(BUCKETS))
    with pytest.raises(Exception, match="fenced worker-4"):
        client.push(MODEL, learning_rate=0.1)


def test_fencing_continues_without_a_lost_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss may be known before the other servers have answered."""
    fenced: list[str] = []

    class Stub:
        def __init__(self, channel: str) -> None:
            self._address = channel

        async def Fence(self, request: ps_pb2.FenceRequest, **options: Any) -> ps_pb2.FenceReply:
            if self._address == "gone":
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, None, None)
            for _ in range(10):
                await asyncio.sleep(0)
            fenced.append(request.worker)
            return ps_pb2.FenceReply(sequence=3, buckets=[5])

    monkeypatch.setattr("elasticdl.ps.client.coordinator.ParameterServerStub", Stub)
    monkeypatch.setattr("elasticdl.ps.client.coordinator.open_aio_channel", lambda address, token: address)
    heard = asyncio.run(Coordinator("token").fence_all({0: "gone", 1: "there"}, "worker-0", 1))
    assert fenced == ["worker-0"]
    assert (heard.sequence, list(heard.buckets)) == (3, [5])


def test_lost_server_is_logged_in_one_line(
    start_servers: Any, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers = start_servers(1)
    servers.servers[0].stop()
    caplog.set_level("INFO", logger="elasticdl.master")
    run(token, lambda coordinator: coordinator.release_all(by_number(servers), "barrier-1"))
    (line,) = caplog.messages
    assert line.startswith("Server 0 cannot be reached to release barrier-1: ")
    assert "\n" not in line


def test_status_of_all_servers_is_returned(start_servers: Any, token: str) -> None:
    servers = start_servers(2)
    servers.client().initialize(MODEL, {}, SGD)
    servers.stores[1].close(4)
    statuses = run(token, lambda coordinator: coordinator.status_all(by_number(servers)))
    assert [(status.generation, status.ready, status.initialized) for status in statuses.values()] == [
        (1, True, True),
        (4, False, False),
    ]
    assert statuses[0].bytes == 4 * statuses[0].parameters > 0


def test_flush_applies_collected_gradients(start_servers: Any, token: str) -> None:
    servers = start_servers(2, grads_to_wait=10)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    client.push(MODEL, learning_rate=1.0, versions=client.pull().versions)

    async def use(coordinator: Coordinator) -> Any:
        kept = await coordinator.freeze_all(by_number(servers), "kept", 1)
        return kept, await coordinator.freeze_all(by_number(servers), "flushed", 1, flush=True)

    assert run(token, use) == ({0: 0, 1: 0}, {0: 1, 1: 1})
    np.testing.assert_array_equal(client.pull(frozen="kept").trainable["a"], MODEL["a"])
    np.testing.assert_array_equal(client.pull(frozen="flushed").trainable["a"], 0 * MODEL["a"])


def test_errors_are_those_of_grpc(
    start_servers: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticdl.ps.server.parameter_server._MAP_SECONDS", 0.0)
    servers = start_servers(2)
    servers.client().initialize(MODEL, {}, SGD)
    gone = {0: servers.addresses[0], 1: "127.0.0.1:1"}

    def code(use: Any) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as error:
            run(token, use)
        assert error.value.details()
        found: grpc.StatusCode = error.value.code()
        return found

    assert (
        code(lambda c: c.freeze_all(by_number(servers), "barrier", 0)) is grpc.StatusCode.FAILED_PRECONDITION
    )
    assert code(lambda c: c.freeze_all(by_number(servers), "barrier", 2)) is grpc.StatusCode.UNAVAILABLE
    later = code(lambda c: c.freeze_all(by_number(servers), "barrier", 1, map_version=9))
    assert later is grpc.StatusCode.UNAVAILABLE
    assert code(lambda c: c.freeze_all(gone, "barrier", 1)) is grpc.StatusCode.UNAVAILABLE
    assert code(lambda c: c.save_all(by_number(servers), "other", tmp_path)) is grpc.StatusCode.NOT_FOUND
    run(token, lambda c: c.release_all(gone, "barrier"))


def test_where_nothing_can_be_written(start_servers: Any, token: str, tmp_path: Path) -> None:
    servers = start_servers(1)
    servers.client().initialize(MODEL, {}, SGD)
    servers.stores[0].master.freeze("barrier", generation=1)
    with pytest.raises(grpc.RpcError) as error:
        run(token, lambda c: c.save_all(by_number(servers), "barrier", tmp_path / "nowhere"))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(tmp_path / "nowhere" / "ps-0-of-1.edl") in (error.value.details() or "")
