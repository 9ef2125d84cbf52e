"""A master that comes back tells those of its nodes that are gone from those that begin meanwhile, and from those that
were never there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ObserveNode, ScaleRole
from elasticdl.master.master import Master
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, Platform
from tests.master.node_statuses import node_status

SPEC = JobSpec.build(
    job_name="j", num_workers=2, num_ps=1, model_zoo="z", model_def="a.b.c", training_data="d"
)


@pytest.fixture
def master(tmp_path: Path, nowhere: Platform) -> Any:
    made = Master(spec=SPEC, folder=tmp_path, platform=nowhere, token="t", environment={})
    made.recover()
    made.state.roster.wanted()
    yield made
    made._journal.close()
    made._events.close()


def test_one_that_joins_while_the_missing_are_asked_about_is_not_missing(
    master: Master, nowhere: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.do(JoinNode(node="worker-0", incarnation="i", address=""))

    async def nodes() -> list[Any]:
        """Takes its time, in which another is started, and joins."""
        master.do(JoinNode(node="worker-1", incarnation="i", address=""))
        return []

    async def notice() -> None:
        await master.supervisor.observe_missing()
        await asyncio.gather(*master._tasks)

    monkeypatch.setattr(nowhere, "nodes", nodes)
    asyncio.run(notice())
    known = master.state.roster.nodes
    assert (known["worker-0"].phase, known["worker-1"].phase) == (NodePhase.FAILED, NodePhase.RUNNING)


def test_drained_node_that_never_started_has_ended(
    master: Master, nowhere: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was to be started by the master before this one, which did not come to it."""
    stops: list[str] = []

    async def stop(name: str, *, grace_seconds: float) -> None:
        stops.append(name)

    monkeypatch.setattr(nowhere, "stop", stop)

    async def come_back() -> None:
        master.supervisor._requested.add("worker-0")
        master.do(ScaleRole(role="worker", target=0))
        await master.reconcile()
        while not stops or master.state.roster.nodes["worker-1"].alive:
            await asyncio.sleep(0)
        await master._servers.close()

    asyncio.run(asyncio.wait_for(come_back(), 60))
    never = master.state.roster.nodes["worker-1"]
    assert (never.phase, never.reason) == (NodePhase.FAILED, EndReason.STOPPED)
    # One that was is for the platform to tell of.
    assert stops == ["worker-0"]
    assert master.state.roster.nodes["worker-0"].alive


@pytest.mark.parametrize("phase", ["running", "leaving"])
def test_one_that_had_not_joined_is_missed_too(
    tmp_path: Path, nowhere: Platform, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """Its container had begun, or it was deleted before that, and then it was gone when the next master came."""
    first = Master(spec=SPEC, folder=tmp_path, platform=nowhere, token="t", environment={})
    first.recover()
    for name in ("ps-0", "worker-0"):
        status = {"name": name, "role": name[:-2], "phase": phase, "reason": "", "message": ""}
        first.do(ObserveNode(status=node_status({**status, "exit_code": None})))
    first._journal.close()
    first._events.close()
    started: list[str] = []

    async def start(request: NodeRequest) -> None:
        started.append(request.name)

    monkeypatch.setattr(nowhere, "start", start)

    async def come_back() -> None:
        master = Master(spec=SPEC, folder=tmp_path, platform=nowhere, token="t", environment={})
        master.recover()
        running = asyncio.create_task(master.run())
        while len(started) < 3:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(come_back(), 60))
    assert sorted(started) == ["ps-1", "worker-1", "worker-2"]
