"""A cluster that kills every node at its start gets replacements with backoff."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.master import Master
from elasticdl.master.scale_limits import scale
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform
from tests.master.fake_time import FakeTime


class Rejecting(Platform):
    """A machine that kills every node at its start, up to a thousand: a flood would go on until then."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.news: asyncio.Queue[NodeStatus] = asyncio.Queue()

    async def start(self, request: NodeRequest) -> None:
        self.started.append(request.name)
        if len(self.started) > 1000:
            return
        words = "OutOfcpu: Node didn't have enough resource: cpu"
        ended = NodePhase.FAILED
        self.news.put_nowait(
            NodeStatus(
                name=request.name, role=request.role, phase=ended, reason=EndReason.KILLED, message=words
            )
        )

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        pass

    async def nodes(self) -> list[NodeStatus]:
        return []

    async def events(self) -> AsyncIterator[NodeStatus]:
        while True:
            yield await self.news.get()

    async def close(self) -> None:
        pass


def on(
    platform: Platform, spec: JobSpec, folder: Path, scenario: Callable[[Master], Awaitable[None]]
) -> None:
    """Plays a scenario while a job runs there, in fake time."""
    (folder / "journal").mkdir()
    loop = FakeTime()

    async def run() -> None:
        master = Master(
            spec=spec, folder=folder, platform=platform, token="t", environment={}, clock=loop.time
        )
        master.recover()
        running = asyncio.create_task(master.run())
        await scenario(master)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize(
    "flags",
    [{"job_command": "true"}, {"model_zoo": "z", "model_def": "a.b.c", "training_data": "/d"}],
    ids=["command", "definition"],
)
def test_cluster_that_rejects_every_pod_is_not_flooded(tmp_path: Path, flags: dict[str, str]) -> None:
    platform = Rejecting()

    async def ten_minutes(master: Master) -> None:
        await asyncio.sleep(600)

    on(platform, JobSpec.build(job_name="rejected", num_workers=1, **flags), tmp_path, ten_minutes)
    assert 20 < len(platform.started) < 30


def test_delayed_node_that_is_no_longer_wanted_does_not_start(tmp_path: Path) -> None:
    platform = Rejecting()

    async def fewer(master: Master) -> None:
        await asyncio.sleep(100)
        first, second = master.state.roster.alive("worker")
        scale(master, {"worker": 1})
        await asyncio.sleep(1)
        assert master.state.roster.alive("worker") == [first]
        assert master.state.roster.nodes[second.name].reason is EndReason.STOPPED

    on(platform, JobSpec.build(job_name="fewer", num_workers=2, job_command="true"), tmp_path, fewer)
