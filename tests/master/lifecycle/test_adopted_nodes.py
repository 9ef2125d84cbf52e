"""Workers that a master without its journal does not know, and finds at work: they are taken in at the place that they
have, unless they end while it looks around.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.recovery import FinishReclaim
from elasticdl.master.master import Master
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform

PATIENCE_SECONDS = 60.0
SPEC = JobSpec.build(job_name="j", job_command="python train.py", num_chief=1, num_workers=2)


def running(name: str, place: int | None = None) -> NodeStatus:
    return NodeStatus(name=name, role=name.rpartition("-")[0], phase=NodePhase.RUNNING, place=place)


class Busy(Platform):
    """`on_stop`: what happens besides, before a node has been stopped. `on_list`: and after the nodes have been listed,
    before the list has arrived.
    """

    def __init__(self, *nodes: NodeStatus) -> None:
        self.known = {status.name: status for status in nodes}
        self.on_stop: Callable[[], None] = lambda: None
        self.on_list: Callable[[], None] = lambda: None
        # A listener has got all nodes, and receives their events.
        self.listened_to = asyncio.Event()
        self._news: asyncio.Queue[NodeStatus] = asyncio.Queue()

    async def start(self, request: NodeRequest) -> None: ...

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        self.on_stop()
        await self._heard()
        self.end(name, EndReason.STOPPED)

    def end(self, name: str, reason: EndReason) -> None:
        phase = NodePhase.SUCCEEDED if reason is EndReason.COMPLETED else NodePhase.FAILED
        self.known[name] = replace(self.known[name], phase=phase, reason=reason)
        self._news.put_nowait(self.known[name])

    async def nodes(self) -> list[NodeStatus]:
        listed = list(self.known.values())
        self.on_list()
        await self._heard()
        return listed

    async def _heard(self) -> None:
        """All that has happened until now."""
        await asyncio.wait_for(self._news.join(), PATIENCE_SECONDS)

    async def events(self) -> AsyncIterator[NodeStatus]:
        for status in list(self.known.values()):
            yield status
        self.listened_to.set()
        while True:
            yield await self._news.get()
            self._news.task_done()

    async def close(self) -> None: ...


@pytest.fixture
def come_back(tmp_path: Path) -> Iterator[Callable[[Platform], Master]]:
    """Without the journal, from a snapshot in which worker-1 was alive."""
    made: list[Master] = []

    def make(platform: Platform, kept: str | None = None) -> Master:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        master = Master(spec=SPEC, folder=folder, platform=platform, token="t", environment={})
        made.append(master)
        master.recover(kept)
        return master

    def back(platform: Platform) -> Master:
        before = make(platform)
        for name in ("chief-0", "worker-0", "worker-1"):
            before.supervisor.observe(running(name))
        return make(platform, before.record())

    yield back
    for master in made:
        master._journal.close()
        master._events.close()


async def look_around(master: Master, platform: Busy) -> None:
    watching = asyncio.create_task(master.supervisor.watch_platform())
    # An end from now on is reported once.
    await asyncio.wait_for(platform.listened_to.wait(), PATIENCE_SECONDS)
    await master._recovery._list_nodes()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await master._servers.close()


def alive(master: Master, role: str) -> dict[str, int]:
    return {node.name: node.slot for node in master.state.roster.alive(role)}


def test_one_that_has_the_place_of_another_comes_to_its_end_there(come_back: Any) -> None:
    platform = Busy(running("chief-0", 0), running("worker-0", 0), running("worker-2", 1))
    master: Master = come_back(platform)
    asyncio.run(look_around(master, platform))
    assert alive(master, "worker") == {"worker-0": 0, "worker-2": 1}
    master.do(FinishReclaim())
    for name in ("worker-2", "worker-0"):
        platform.end(name, EndReason.COMPLETED)
        master.supervisor.observe(platform.known[name])
    assert alive(master, "worker") == {}, "what has come to its end is not run once more"


def test_adopted_worker_with_unknown_slot_gets_a_free_one(come_back: Any) -> None:
    platform = Busy(running("chief-0"), *(running(f"worker-{i}") for i in range(3)))
    master: Master = come_back(platform)
    asyncio.run(look_around(master, platform))
    assert alive(master, "worker") == {"worker-0": 0, "worker-1": 1, "worker-2": 2}


@pytest.mark.parametrize("first", ["chief-1", "worker-2"])
def test_one_that_ends_meanwhile_is_replaced(come_back: Any, first: str) -> None:
    """The place of the other chief is unknown after the restart: it is stopped, and that takes a moment."""
    found = sorted([running("chief-1", 0), running("worker-2", 1)], key=lambda status: status.name != first)
    platform = Busy(running("chief-0", 0), running("worker-0", 0), *found)
    platform.on_stop = lambda: platform.end("worker-2", EndReason.KILLED)
    master: Master = come_back(platform)
    asyncio.run(look_around(master, platform))
    assert platform.known["chief-1"].reason is EndReason.STOPPED
    master.do(FinishReclaim())
    assert alive(master, "worker") == {"worker-0": 0, "worker-3": 1}
    assert alive(master, "chief") == {"chief-0": 0}


def test_one_that_has_ended_when_the_list_arrives_is_replaced(come_back: Any) -> None:
    platform = Busy(running("chief-0", 0), running("worker-0", 0), running("worker-2", 1))
    master: Master = come_back(platform)
    lists: list[str] = []

    def ends() -> None:
        lists.append("asked")
        # The first is for nodes that ended while no master ran.
        if len(lists) == 2:
            platform.end("worker-2", EndReason.KILLED)

    platform.on_list = ends
    asyncio.run(look_around(master, platform))
    assert not master.state.roster.nodes["worker-2"].alive


def test_terminating_node_is_adopted_as_leaving(come_back: Any) -> None:
    leaving = replace(running("worker-2", 1), phase=NodePhase.LEAVING)
    platform = Busy(running("chief-0", 0), running("worker-0", 0), leaving)
    master: Master = come_back(platform)
    asyncio.run(look_around(master, platform))
    assert master.state.roster.nodes["worker-2"].leaving
    master.do(FinishReclaim())
    assert alive(master, "worker") == {"worker-0": 0, "worker-2": 1, "worker-3": 1}
