"""The master asks for a checkpoint again: files do not mix, calls do not pile up, nothing unwanted is written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from elasticdl.ps.checkpoint.array_file import ArrayFileWriter, read_array_file
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.server_errors import CallCancelled
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.server.parameter_server import _THREADS
from elasticdl.ps.server.save_queue import SaveQueue
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_channel
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
# Only to fail instead of waiting forever.
LONG_SECONDS = 40.0


@pytest.fixture
def servers(start_servers: Any) -> Any:
    started = start_servers(1)
    started.client().initialize({"a": np.ones(500_000, np.float32)}, {}, SGD)
    started.stores[0].master.freeze("barrier", generation=1)
    return started


def save(token: str, addresses: dict[int, str], folder: Path) -> Any:
    async def inside() -> Any:
        coordinator = Coordinator(token)
        try:
            return await coordinator.save_all(addresses, "barrier", folder)
        finally:
            await coordinator.close()

    return asyncio.run(inside())


def outcome(call: futures.Future[Any] | grpc.Future[Any]) -> grpc.StatusCode:
    try:
        call.result(timeout=LONG_SECONDS)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def test_two_saves_of_one_file_do_not_mix(servers: Any, token: str, tmp_path: Path) -> None:
    """As when the master was killed while it saved, and saves again when it is back."""
    with futures.ThreadPoolExecutor(4) as pool:
        addresses = {0: servers.addresses[0]}
        saves = [pool.submit(save, token, addresses, tmp_path) for _ in range(4)]
        outcomes = [outcome(each) for each in saves]
    assert grpc.StatusCode.OK in outcomes
    assert set(outcomes) <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
    np.testing.assert_array_equal(read_array_file(tmp_path / "ps-0-of-1.edl").groups["trainable"]["a"], 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_saves_to_slow_disk_do_not_pile_up(
    servers: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, goes_on, replaced = threading.Event(), threading.Event(), threading.Semaphore(0)
    add = ArrayFileWriter.add

    def slow(file: ArrayFileWriter, group: str, name: str, given: Array) -> None:
        reached.set()
        assert goes_on.wait(LONG_SECONDS)
        add(file, group, name, given)

    monkeypatch.setattr(ArrayFileWriter, "add", slow)
    with open_channel(servers.addresses[0], token) as channel:
        stub = ParameterServerStub(channel)  # type: ignore[no-untyped-call]
        request = ps_pb2.SaveRequest(name="barrier", path=str(tmp_path / "file.edl"))
        saves = [stub.Save.future(request) for _ in range(2 * _THREADS)]
        for each in saves:
            each.add_done_callback(lambda _: replaced.release())
        assert reached.wait(LONG_SECONDS)
        # Others are still answered.
        assert stub.ServerStatus(ps_pb2.ServerStatusRequest(), timeout=LONG_SECONDS / 2).initialized
        # Each new call replaces the waiting one: all have arrived when only one waits, and one writes.
        for _ in range(2 * _THREADS - 2):
            assert replaced.acquire(timeout=LONG_SECONDS)
        goes_on.set()
        outcomes = [outcome(each) for each in saves]
        # The one that was asked for last, whichever that is.
        assert sorted(code.name for code in outcomes) == ["CANCELLED"] * (2 * _THREADS - 1) + ["OK"]
    np.testing.assert_array_equal(read_array_file(tmp_path / "file.edl").groups["trainable"]["a"], 1)


def test_when_one_server_fails_the_others_stop_writing(
    start_servers: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = start_servers(2)
    servers.client().initialize({f"a{number}": np.ones(9, np.float32) for number in range(8)}, {}, SGD)
    # The other one has no such copy.
    servers.stores[0].master.freeze("barrier", generation=1)
    begun, stopped, tick = threading.Event(), threading.Event(), threading.Event()
    add, save_nothing = ArrayFileWriter.add, servers.stores[1].master.save

    def late(*arguments: Any, **options: Any) -> Any:
        # A call that ends before the other one has begun would leave nothing to be stopped.
        assert begun.wait(LONG_SECONDS)
        return save_nothing(*arguments, **options)

    def slow(file: ArrayFileWriter, group: str, name: str, given: Array) -> None:
        begun.set()
        try:
            for _ in range(int(LONG_SECONDS / 0.01)):
                file._check()
                tick.wait(0.01)
        except BaseException:
            stopped.set()
            raise
        add(file, group, name, given)

    monkeypatch.setattr(ArrayFileWriter, "add", slow)
    monkeypatch.setattr(servers.stores[1].master, "save", late)

    async def inside() -> None:
        coordinator = Coordinator(token)
        with pytest.raises(grpc.RpcError) as error:
            await coordinator.save_all(dict(enumerate(servers.addresses)), "barrier", tmp_path)
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        # The master goes on, with the same connections.
        assert await asyncio.to_thread(stopped.wait, LONG_SECONDS)
        await coordinator.close()

    asyncio.run(inside())


def test_cancelled_save_does_not_stop_its_successor() -> None:
    """It may get a thread only after the one that came in its place."""
    saves = SaveQueue()

    def write(check: Callable[[], None]) -> str:
        with pytest.raises(CallCancelled):
            saves.save(lambda check: "late", wanted=lambda: False)
        check()
        return "written"

    assert saves.save(write) == "written"
