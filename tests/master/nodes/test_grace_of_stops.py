"""A program that is stopped has its whole grace: no second stop cuts it short, however the job has ended."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ObserveNode
from elasticdl.master.master import Master
from elasticdl.platforms.platform import NodePhase, NodeStatus, Platform
from tests.master.node_statuses import node_status


@pytest.fixture
def stops(nowhere: Platform, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []

    async def stop(name: str, *, grace_seconds: float) -> None:
        found.append((name, grace_seconds))

    async def nodes() -> list[NodeStatus]:
        return [NodeStatus(name="worker-0", role="worker", phase=NodePhase.RUNNING)]

    monkeypatch.setattr(nowhere, "stop", stop)
    monkeypatch.setattr(nowhere, "nodes", nodes)
    return found


def end(folder: Path, platform: Platform, **flags: Any) -> None:
    """Of a job with two workers at work, the second of which cannot go on. No node ends on request."""
    seconds = itertools.count(step=100)
    (folder / "journal").mkdir()
    master = Master(
        spec=JobSpec.build(job_name="j", num_workers=2, **flags),
        folder=folder,
        platform=platform,
        token="t",
        environment={},
        clock=lambda: float(next(seconds)),
    )
    master.recover()
    master.state.roster.wanted()
    plain = {"role": "worker", "reason": "", "exit_code": None, "message": ""}
    for name in ("worker-0", "worker-1"):
        master.do(ObserveNode(status=node_status({**plain, "name": name, "phase": NodePhase.RUNNING.value})))
        if not flags.get("job_command"):
            master.do(JoinNode(node=name, incarnation="i", address=""))
    ended = {**plain, "name": "worker-1", "phase": NodePhase.FAILED.value, "reason": "cannot start"}
    master.do(ObserveNode(status=node_status(ended)))
    assert master.state.outcome == "failed"
    asyncio.run(master.run())


def test_a_program_is_stopped_once(tmp_path: Path, nowhere: Platform, stops: list[tuple[str, float]]) -> None:
    end(tmp_path, nowhere, job_command="true")
    assert stops == [("worker-0", 10.0)]


def test_node_of_ours_that_ignores_the_end_is_stopped_after_a_short_grace(
    tmp_path: Path, nowhere: Platform, stops: list[tuple[str, float]]
) -> None:
    end(tmp_path, nowhere, model_zoo="z", model_def="a.b.c", training_data="d")
    # The parameter server has not even begun.
    assert stops == [("ps-0", 10.0), ("worker-0", 3.0)]
