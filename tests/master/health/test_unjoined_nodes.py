"""A node that runs and does not join is reported, and killed after the start timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from elasticdl.master.master import Master
from elasticdl.master.status import job_status
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus
from tests.master.fake_time import Clock


@pytest.fixture
def start(new_master: Callable[..., Master]) -> Callable[..., Master]:
    """A job of two servers and a worker, which run as far as the platform knows."""
    usual = {"num_workers": 1, "num_ps": 2, "start_timeout_seconds": 100, "relaunch_on_worker_failure": 1}

    def start(**flags: Any) -> Master:
        master = new_master(**{**usual, **flags})
        run(master, *master.state.roster.nodes)
        return master

    return start


def run(master: Master, *names: str) -> None:
    """Nodes are started, and their processes run."""

    async def reconcile() -> None:
        await master.reconcile()
        await asyncio.gather(*master._tasks)

    asyncio.run(reconcile())
    for name in names:
        master.supervisor.observe(NodeStatus(name=name, role=name[:-2], phase=NodePhase.RUNNING))


@pytest.fixture
def join() -> Iterator[Callable[..., None]]:
    """Nodes join, and open their directive streams."""
    with ExitStack() as calls:

        def join(master: Master, *names: str) -> None:
            for name in names:
                assert master.do("join", node=name, incarnation="i", address="here")
                calls.enter_context(master.supervisor.directive_stream(name))

        yield join


def wait(master: Master, clock: Clock, seconds: int) -> None:
    """With a check every second."""
    for _ in range(seconds):
        clock.now += 1
        asyncio.run(master.supervisor.check_nodes())


def unresponsive(master: Master) -> list[str]:
    return [node.name for node in job_status(master).nodes if node.unresponsive_since_seconds]


def test_unjoined_node_is_reported_after_half_a_minute(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    wait(master, clock, 29)
    assert unresponsive(master) == []
    wait(master, clock, 1)
    assert unresponsive(master) == ["ps-1"]
    since = dict(master.supervisor.unresponsive.since)
    wait(master, clock, 60)
    assert master.supervisor.unresponsive.since == since
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Waiting for ps-1: not joined since ")
    assert line.endswith(" (timeout 100 s)")
    join(master, "ps-1")
    wait(master, clock, 1)
    assert unresponsive(master) == []


@pytest.mark.parametrize("unjoined", ["ps-0", "ps-1", "worker-0"])
def test_unjoined_node_is_killed_after_the_start_timeout(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str], unjoined: str
) -> None:
    master = start()
    join(master, *({"ps-0", "ps-1", "worker-0"} - {unjoined}))
    wait(master, clock, 100)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == [unjoined]
    # Until the platform has noticed.
    wait(master, clock, 100)
    assert stopped == [unjoined]


def test_unjoined_nodes_fail_the_job_after_the_allowed_failures(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    wait(master, clock, 101)
    master.supervisor.observe(
        NodeStatus(name="ps-1", role="ps", phase=NodePhase.FAILED, reason=EndReason.STOPPED)
    )
    run(master, "ps-2")
    wait(master, clock, 100)
    assert master.state.outcome == ""
    wait(master, clock, 1)
    assert stopped == ["ps-1", "ps-2"]
    assert job_status(master).state == "failed"
    assert master.state.message.startswith(
        "ps-2 has not joined the job within 100 s of its start (--start_timeout_seconds)"
    )


def test_zero_start_timeout_only_reports(
    start: Callable[..., Master], clock: Clock, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    master = start(start_timeout_seconds=0)
    wait(master, clock, 1000)
    assert stopped == []
    assert unresponsive(master) == ["ps-0", "ps-1", "worker-0"]
    assert "(no timeout: --start_timeout_seconds=0)" in caplog.text


def test_pending_node_is_neither_reported_nor_killed(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    master.supervisor.observe(NodeStatus(name="ps-1", role="ps", phase=NodePhase.PENDING, message="no room"))
    wait(master, clock, 1000)
    assert stopped == []
    assert unresponsive(master) == []


def test_suspended_master_restarts_the_timers(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    wait(master, clock, 1)
    clock.now += 3600
    # The calls of nodes that have tried to join are still to be received.
    wait(master, clock, 20)
    assert stopped == []
    assert unresponsive(master) == []


def test_programs_are_not_expected_to_join(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    command = {"job_command": "true", "num_ps": 0, "model_zoo": "", "model_def": "", "training_data": ""}
    master = start(**command)
    wait(master, clock, 1000)
    assert stopped == []
    assert unresponsive(master) == []


def test_server_that_does_not_answer_is_reported_without_a_timeout(
    start: Callable[..., Master],
    join: Callable[..., None],
    clock: Clock,
    stopped: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = start(stall_factor=0)
    join(master, "ps-0", "ps-1", "worker-0")
    asyncio.run(master.supervisor.note_server_probe({"ps-0": True, "ps-1": False}))
    wait(master, clock, 29)
    assert unresponsive(master) == []
    wait(master, clock, 1)
    assert unresponsive(master) == ["ps-1"]
    assert "Waiting for ps-1: unresponsive since " in caplog.text
    assert "(no timeout: --stall_factor=0)" in caplog.text
    asyncio.run(master.supervisor.note_server_probe({"ps-0": True, "ps-1": True}))
    wait(master, clock, 1)
    assert unresponsive(master) == []
    assert stopped == []
