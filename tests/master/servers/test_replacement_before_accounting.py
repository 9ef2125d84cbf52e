"""A worker that has ended is replaced at once, also where a parameter server hangs and cannot say what it has of it.
What the worker held waits for that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ObserveNode, ReportFailure, VacateNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards
from elasticdl.master.lifecycle.roster import Roster
from elasticdl.master.master import Master
from elasticdl.master.servers.worker_fence import LastWord
from elasticdl.master.status import job_status
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform


@pytest.fixture
def hanging() -> Iterator[str]:
    """The address of a server that takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def started(nowhere: Platform, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    async def start(request: NodeRequest) -> None:
        names.append(request.name)

    monkeypatch.setattr(nowhere, "start", start)
    return names


@pytest.fixture
def come(tmp_path: Path, nowhere: Platform) -> Iterator[Callable[..., Master]]:
    """A master, or the next one after it."""
    made: list[Master] = []

    def close() -> None:
        for master in made:
            master._journal.close()
            master._events.close()
        made.clear()

    def come(**flags: Any) -> Master:
        close()
        spec = JobSpec.build(
            job_name="j",
            num_workers=2,
            num_ps=1,
            model_zoo="z",
            model_def="a.b.c",
            training_data="d",
            # A server that hangs is waited for indefinitely.
            stall_factor=0,
            **flags,
        )
        made.append(Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}))
        made[0].recover()
        return made[0]

    yield come
    close()


def ended(name: str, reason: EndReason = EndReason.KILLED, **more: Any) -> NodeStatus:
    return NodeStatus(name=name, role="worker", phase=NodePhase.FAILED, reason=reason, **more)


def begin(master: Master, server: str) -> None:
    """Training, in which worker-0 holds a shard."""
    master.do(JoinNode(node="ps-0", incarnation="i", address=server))
    for name in ("worker-0", "worker-1"):
        master.do(JoinNode(node=name, incarnation="i", address=""))
    master.do(AnnounceDataset(dataset="training", size=10_000))
    assert master.do(LeaseShards(dataset="training", worker="worker-0", count=1, request_id=1))


async def going_on(master: Master) -> None:
    """Does what the state calls for, until there is nothing more to do at once; what waits is given up."""
    await master.reconcile()
    for _ in range(10):
        await asyncio.sleep(0)
    for task in master._tasks:
        task.cancel()
    await asyncio.gather(*master._tasks, return_exceptions=True)
    await master._servers.close()


def test_while_a_server_hangs(come: Callable[..., Master], hanging: str, started: list[str]) -> None:
    master = come()
    begin(master, hanging)

    async def lose() -> None:
        master.supervisor.note_end(ended("worker-0"))
        await going_on(master)

    asyncio.run(lose())
    assert started == ["worker-2"]
    # It is not known yet what it has done.
    assert [lease.worker for lease in master.state.ledger.held("training")] == ["worker-0"]
    nodes = {node.name: node for node in job_status(master).nodes}
    assert nodes["worker-0"].reason == "killed"


def test_the_next_master_asks_for_what_is_still_to_be_accounted_for(
    come: Callable[..., Master],
    hanging: str,
    started: list[str],
    nowhere: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = come()
    begin(first, hanging)

    async def lose() -> None:
        first.supervisor.note_end(ended("worker-0"))
        await going_on(first)

    asyncio.run(lose())
    first.do(JoinNode(node="worker-2", incarnation="i", address=""))
    second = come()
    asked: list[str] = []

    async def last_word(worker: str) -> LastWord:
        asked.append(worker)
        return LastWord()

    async def nodes() -> list[NodeStatus]:
        """Those that live: the others it has forgotten."""
        there = ("ps-0", "worker-1", "worker-2")
        return [NodeStatus(name=name, role=name[:-2], phase=NodePhase.RUNNING) for name in there]

    async def come_back() -> None:
        await second.supervisor.observe_missing()
        assert second.state.ledger.held_by("worker-0")
        await asyncio.gather(*second._tasks)
        await going_on(second)

    monkeypatch.setattr(second._fencing, "last_word", last_word)
    monkeypatch.setattr(nowhere, "nodes", nodes)
    asyncio.run(come_back())
    assert asked == ["worker-0"]
    assert not second.state.ledger.held_by("worker-0")
    assert started == ["worker-2"]


def test_its_end_counts_once() -> None:
    made = Roster(max_failures=1, targets={"worker": 1})
    for name in ("worker-0", "worker-1"):
        (node,) = made.wanted()
        assert node.name == name
        assert made.join(name, "i", "")
        for _ in range(2):
            made.vacate(ended(name, EndReason.OUT_OF_MEMORY))
        # The last one has no successor.
        assert node.vacated is (name == "worker-0")
        found, failure = made.observe(ended(name, EndReason.OUT_OF_MEMORY))
        assert found is node
        assert (failure is not None) is (name == "worker-1")
        assert not node.vacated
    assert (node.failures, node.memory_doublings) == (2, 2)


def test_samples_that_fail_are_named_where_the_worker_has_failed_too_often_as_well(
    come: Callable[..., Master], hanging: str, started: list[str]
) -> None:
    master = come(relaunch_on_worker_failure=0, max_shard_retries=0)
    begin(master, hanging)
    state = master.state
    (lease,) = state.ledger.held_by("worker-0")
    failure: dict[str, Any] = {"message": "bad sample", "traceback": "", "lease_id": lease.lease_id}
    master.do(ReportFailure(node="worker-0", kind="program", **failure))
    end = ended("worker-0", EndReason.ERROR)
    outcomes = []
    for command in (VacateNode(status=end), ObserveNode(status=end)):
        master.do(command)
        outcomes.append(state.outcome)
    assert outcomes == ["", "failed"]
    assert "bad sample" in state.message
