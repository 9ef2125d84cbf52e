"""A worker that has joined and sends no heartbeats is killed, whether it holds a shard or not: others may wait for it,
as the end of an epoch does for the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from elasticdl.master.master import Master
from elasticdl.master.service import MasterService
from elasticdl.platforms.platform import Platform
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import add_port, new_aio_server, open_aio_channel
from elasticdl.wire.master_pb2_grpc import MasterStub, add_MasterServicer_to_server
from tests.master.conftest import TOKEN
from tests.master.fake_time import Clock


@pytest.fixture
def start(new_master: Callable[..., Master]) -> Callable[..., Master]:
    """A job of two workers that have joined."""

    def start(**flags: Any) -> Master:
        master = new_master(**{"num_workers": 2, "num_ps": 1, "stall_floor_seconds": 60, **flags})
        for name in ("worker-0", "worker-1"):
            assert master.do("join", node=name, incarnation="i", address="")
        return master

    return start


@pytest.fixture
def calls() -> Iterator[ExitStack]:
    """Directive streams that stay open."""
    with ExitStack() as opened:
        yield opened


def wait(master: Master, clock: Clock, seconds: int) -> None:
    """With a check every second."""
    for _ in range(seconds):
        clock.now += 1
        asyncio.run(master.supervisor.check_nodes())


def test_worker_without_heartbeats_is_killed_after_the_stall_floor(
    start: Callable[..., Master],
    clock: Clock,
    stopped: list[str],
    calls: ExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = start()
    calls.enter_context(master.supervisor.directive_stream("worker-1"))
    with master.supervisor.directive_stream("worker-0"):
        wait(master, clock, 600)
    wait(master, clock, 60)
    assert stopped == []
    assert list(master.supervisor.unresponsive.since) == ["worker-0"]
    assert "Waiting for worker-0: unresponsive since " in caplog.text
    assert "(timeout at least 60 s)" in caplog.text
    wait(master, clock, 1)
    assert stopped == ["worker-0"]
    assert "Killing worker-0: unresponsive for 61 s" in caplog.text
    # Until the platform has noticed.
    wait(master, clock, 60)
    assert stopped == ["worker-0"]


def test_worker_that_reconnects_in_time_is_not_killed(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start()
    calls.enter_context(master.supervisor.directive_stream("worker-1"))
    for _ in range(3):
        # The end of the previous stream may be noticed after the next one has opened.
        before, after = ExitStack(), ExitStack()
        before.enter_context(master.supervisor.directive_stream("worker-0"))
        after.enter_context(master.supervisor.directive_stream("worker-0"))
        before.close()
        wait(master, clock, 100)
        after.close()
        wait(master, clock, 59)
    assert stopped == []


def test_all_workers_without_heartbeats_get_four_times_as_long(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    for name in ("worker-0", "worker-1", "ps-0"):
        with master.supervisor.directive_stream(name):
            pass
    wait(master, clock, 240)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0", "worker-1"]


def test_worker_with_long_batches_gets_a_multiple_of_a_batch(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start(stall_factor=20)
    calls.enter_context(master.supervisor.directive_stream("worker-1"))
    with master.supervisor.directive_stream("worker-0"):
        master.detector.progress_reported("worker-0", clock(), batch_seconds=10.0)
    wait(master, clock, 200)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0"]


def test_worker_without_its_first_stream_gets_the_start_timeout(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start(start_timeout_seconds=300)
    calls.enter_context(master.supervisor.directive_stream("worker-1"))
    # Counted from the first check.
    wait(master, clock, 301)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0"]


def test_worker_that_reconnects_while_another_is_killed_is_not_killed(
    start: Callable[..., Master],
    clock: Clock,
    nowhere: Platform,
    calls: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = start()
    stopped: list[str] = []

    async def stop(name: str, *, grace_seconds: float) -> None:
        """The platform cannot be reached either, for a while."""
        stopped.append(name)
        clock.now += 100
        for worker in ("worker-0", "worker-1"):
            calls.enter_context(master.supervisor.directive_stream(worker))

    monkeypatch.setattr(nowhere, "stop", stop)
    for name in ("worker-0", "worker-1"):
        with master.supervisor.directive_stream(name):
            pass
    wait(master, clock, 600)
    assert stopped == ["worker-0"]


def test_suspended_master_restarts_the_timers(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    wait(master, clock, 1)
    clock.now += 3600
    wait(master, clock, 60)
    assert stopped == []


def test_zero_stall_factor_only_reports(
    start: Callable[..., Master], clock: Clock, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    master = start(stall_factor=0)
    wait(master, clock, 600)
    assert stopped == []
    assert list(master.supervisor.unresponsive.since) == ["worker-0", "worker-1"]
    assert "(no timeout: --stall_factor=0)" in caplog.text


@pytest.mark.timeout(60)
def test_broken_stream_is_noticed(start: Callable[..., Master]) -> None:
    master = start()

    async def follow() -> None:
        server = new_aio_server(TOKEN)
        add_MasterServicer_to_server(MasterService(master), server)  # type: ignore[no-untyped-call]
        port = add_port(server, "127.0.0.1:0")
        await server.start()
        channel = open_aio_channel(f"127.0.0.1:{port}", TOKEN)
        stream = MasterStub(channel).Watch(pb.WatchRequest(node="worker-0", incarnation="i"))  # type: ignore[no-untyped-call]
        assert (await stream.read()).leader
        assert master.detector.is_connected("worker-0")
        assert not master.detector.is_connected("worker-1")
        await channel.close(None)
        while master.detector.is_connected("worker-0"):
            await asyncio.sleep(0)
        await server.stop(None)

    asyncio.run(follow())
