"""A worker that has joined and cannot be reached any more is ended, whether it holds a shard or not: others may wait
for it, as the end of an epoch does for the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.master import Master
from elasticdl.master.services.master_service import MasterService
from elasticdl.platforms.platform import Platform
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import add_port, new_aio_server, open_aio_channel
from elasticdl.wire.master_pb2_grpc import MasterStub, add_MasterServicer_to_server
from tests.master.conftest import TOKEN
from tests.master.fake_time import Clock


@pytest.fixture
def start(new_master: Callable[..., Master]) -> Callable[..., Master]:
    """A job of two workers, who have joined."""

    def start(**flags: Any) -> Master:
        master = new_master(**{"num_workers": 2, "num_ps": 1, "stall_floor_seconds": 60, **flags})
        for name in ("worker-0", "worker-1"):
            assert master.do(JoinNode(node=name, incarnation="i", address=""))
        return master

    return start


@pytest.fixture
def calls() -> Iterator[ExitStack]:
    """Those for directives that stay open."""
    with ExitStack() as opened:
        yield opened


def wait(master: Master, clock: Clock, seconds: int) -> None:
    """Somebody looks every second."""
    for _ in range(seconds):
        clock.now += 1
        asyncio.run(master.end_the_stuck(clock()))


def test_it_is_ended(
    start: Callable[..., Master],
    clock: Clock,
    stopped: list[str],
    calls: ExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = start()
    calls.enter_context(master.liveness.following("worker-1"))
    with master.liveness.following("worker-0"):
        wait(master, clock, 600)
    wait(master, clock, 60)
    assert stopped == []
    assert list(master.unheard.since) == ["worker-0"]
    assert "worker-0 runs and cannot be reached: nothing is heard of it since " in caplog.text
    wait(master, clock, 1)
    assert stopped == ["worker-0"]
    # Until the platform has noticed.
    wait(master, clock, 60)
    assert stopped == ["worker-0"]


def test_one_that_comes_back_in_time_is_not(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start()
    calls.enter_context(master.liveness.following("worker-1"))
    for _ in range(3):
        # The call of before may be noticed to be over after the next one has come.
        before, after = ExitStack(), ExitStack()
        before.enter_context(master.liveness.following("worker-0"))
        after.enter_context(master.liveness.following("worker-0"))
        before.close()
        wait(master, clock, 100)
        after.close()
        wait(master, clock, 59)
    assert stopped == []


def test_if_nobody_can_be_reached_all_are_given_more_time(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    for name in ("worker-0", "worker-1", "ps-0"):
        with master.liveness.following(name):
            pass
    wait(master, clock, 240)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0", "worker-1"]


def test_one_whose_batches_take_long_is_given_more_time(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start(stall_factor=20)
    calls.enter_context(master.liveness.following("worker-1"))
    with master.liveness.following("worker-0"):
        master.liveness.moved("worker-0", batch_seconds=10.0)
    wait(master, clock, 200)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0"]


def test_one_that_has_yet_to_follow_has_as_long_as_one_that_has_yet_to_join(
    start: Callable[..., Master], clock: Clock, stopped: list[str], calls: ExitStack
) -> None:
    master = start(start_timeout_seconds=300)
    calls.enter_context(master.liveness.following("worker-1"))
    # The moment at which somebody first looks counts.
    wait(master, clock, 301)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == ["worker-0"]


def test_who_came_back_while_another_was_ended_stays(
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
            calls.enter_context(master.liveness.following(worker))

    monkeypatch.setattr(nowhere, "stop", stop)
    for name in ("worker-0", "worker-1"):
        with master.liveness.following(name):
            pass
    wait(master, clock, 600)
    assert stopped == ["worker-0"]


def test_a_master_that_stood_still_waits_anew(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    wait(master, clock, 1)
    clock.now += 3600
    wait(master, clock, 60)
    assert stopped == []


def test_where_nobody_is_ended_for_standing_still(
    start: Callable[..., Master], clock: Clock, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    master = start(stall_factor=0)
    wait(master, clock, 600)
    assert stopped == []
    assert list(master.unheard.since) == ["worker-0", "worker-1"]
    assert "It is waited for, for ever (--stall_factor=0)." in caplog.text


@pytest.mark.timeout(60)
def test_a_call_that_is_broken_off_is_noticed(start: Callable[..., Master], clock: Clock) -> None:
    master = start()

    async def follow() -> None:
        server = new_aio_server(TOKEN)
        add_MasterServicer_to_server(MasterService(master), server)  # type: ignore[no-untyped-call]
        port = add_port(server, "127.0.0.1:0")
        await server.start()
        channel = open_aio_channel(f"127.0.0.1:{port}", TOKEN)
        stream = MasterStub(channel).Watch(pb.WatchRequest(node="worker-0", incarnation="i"))  # type: ignore[no-untyped-call]
        assert (await stream.read()).leader
        assert list(master.liveness.cut_off(clock())) == ["worker-1"]
        await channel.close(None)
        while "worker-0" not in master.liveness.cut_off(clock()):
            await asyncio.sleep(0)
        await server.stop(None)

    asyncio.run(follow())
