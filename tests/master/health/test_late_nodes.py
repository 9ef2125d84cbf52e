"""Nodes that hang before they join: people are told, and after a while they are ended, as programs that hang are."""

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
    """They are started, and begin to run."""

    async def reconcile() -> None:
        await master.reconcile()
        await asyncio.gather(*master._tasks)

    asyncio.run(reconcile())
    for name in names:
        master.observe(NodeStatus(name=name, role=name[:-2], phase=NodePhase.RUNNING))


@pytest.fixture
def join() -> Iterator[Callable[..., None]]:
    """Nodes do, and follow what the master says."""
    with ExitStack() as calls:

        def join(master: Master, *names: str) -> None:
            for name in names:
                assert master.do("join", node=name, incarnation="i", address="here")
                calls.enter_context(master.liveness.following(name))

        yield join


def wait(master: Master, clock: Clock, seconds: int) -> None:
    """Somebody looks every second."""
    for _ in range(seconds):
        clock.now += 1
        asyncio.run(master.end_the_stuck(clock()))


def unheard(master: Master) -> list[str]:
    return [node.name for node in job_status(master).nodes if node.unresponsive_since_seconds]


def test_people_are_told(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    wait(master, clock, 29)
    assert unheard(master) == []
    wait(master, clock, 1)
    assert unheard(master) == ["ps-1"]
    since = dict(master.unheard.since)
    wait(master, clock, 60)
    assert master.unheard.since == since
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("ps-1 runs and has not joined: nothing is heard of it since ")
    assert told.endswith("It is waited for, at most 100 s.")
    join(master, "ps-1")
    wait(master, clock, 1)
    assert unheard(master) == []


@pytest.mark.parametrize("late", ["ps-0", "ps-1", "worker-0"])
def test_it_is_ended(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str], late: str
) -> None:
    master = start()
    join(master, *({"ps-0", "ps-1", "worker-0"} - {late}))
    wait(master, clock, 100)
    assert stopped == []
    wait(master, clock, 1)
    assert stopped == [late]
    # Until the platform has noticed.
    wait(master, clock, 100)
    assert stopped == [late]


def test_as_often_as_nodes_may_fail(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    wait(master, clock, 101)
    master.observe(NodeStatus(name="ps-1", role="ps", phase=NodePhase.FAILED, reason=EndReason.STOPPED))
    run(master, "ps-2")
    wait(master, clock, 100)
    assert master.state.outcome == ""
    wait(master, clock, 1)
    assert stopped == ["ps-1", "ps-2"]
    assert job_status(master).state == "failed"
    assert master.state.message.startswith(
        "ps-2 has not joined the job within 100 s of its start (--start_timeout_seconds)"
    )


def test_never(
    start: Callable[..., Master], clock: Clock, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    master = start(start_timeout_seconds=0)
    wait(master, clock, 1000)
    assert stopped == []
    assert unheard(master) == ["ps-0", "ps-1", "worker-0"]
    assert "It is waited for, for ever (--start_timeout_seconds=0)." in caplog.text


def test_who_waits_for_room_on_a_cluster_does_not_run(
    start: Callable[..., Master], join: Callable[..., None], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    join(master, "ps-0", "worker-0")
    master.observe(NodeStatus(name="ps-1", role="ps", phase=NodePhase.PENDING, message="no room"))
    wait(master, clock, 1000)
    assert stopped == []
    assert unheard(master) == []


def test_a_master_that_stood_still_waits_anew(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start()
    wait(master, clock, 1)
    clock.now += 3600
    # The calls of those that wanted to join are still to be heard.
    wait(master, clock, 20)
    assert stopped == []
    assert unheard(master) == []


def test_programs_join_nobody(start: Callable[..., Master], clock: Clock, stopped: list[str]) -> None:
    command = {"job_command": "true", "num_ps": 0, "model_zoo": "", "model_def": "", "training_data": ""}
    master = start(**command)
    wait(master, clock, 1000)
    assert stopped == []
    assert unheard(master) == []


def test_a_server_that_does_not_answer(
    start: Callable[..., Master],
    join: Callable[..., None],
    clock: Clock,
    stopped: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where nothing is ever done about it."""
    master = start(stall_factor=0)
    join(master, "ps-0", "ps-1", "worker-0")
    asyncio.run(master.note_answers({"ps-0": True, "ps-1": False}))
    wait(master, clock, 29)
    assert unheard(master) == []
    wait(master, clock, 1)
    assert unheard(master) == ["ps-1"]
    assert "ps-1 runs and does not answer: nothing is heard of it since " in caplog.text
    assert "It is waited for, for ever (--stall_factor=0)." in caplog.text
    asyncio.run(master.note_answers({"ps-0": True, "ps-1": True}))
    wait(master, clock, 1)
    assert unheard(master) == []
    assert stopped == []
