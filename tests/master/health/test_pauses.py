"""Who is replaced at once, and who after a pause that grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.health.restart_backoff import Pauses
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.master import Master
from elasticdl.master.scale_limits import scale
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform
from tests.master.fake_time import FakeTime


class Slot:
    """One place of a job, and the nodes that take it one after the other."""

    def __init__(self, *, after_failures: bool = False) -> None:
        self.now = 100.0
        self.pauses = Pauses(lambda: self.now, after_failures=after_failures)
        self.number = 0

    def node(self, failures: int = 0) -> Node:
        return Node(
            name=f"worker-{self.number}", role="worker", number=self.number, slot=0, failures=failures
        )

    def ends(
        self,
        *,
        after: float = 1.0,
        moved: bool = False,
        phase: NodePhase = NodePhase.FAILED,
        reason: EndReason = EndReason.KILLED,
    ) -> float:
        """The pause before the next one."""
        self.pauses.started(f"worker-{self.number}")
        self.now += after
        self.seen(phase, reason, moved=moved)
        self.number += 1
        return self.pauses.pause(self.node())

    def seen(self, phase: NodePhase, reason: EndReason = EndReason.NONE, *, moved: bool = False) -> None:
        name = f"worker-{self.number}"
        status = NodeStatus(name=name, role="worker", phase=phase, reason=reason)
        self.pauses.seen(self.node(), status, moved=moved)


def test_the_first_is_replaced_at_once_and_then_pauses_double_up_to_a_limit() -> None:
    slot = Slot()
    assert [slot.ends() for _ in range(9)] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_there_is_no_limit_to_their_number() -> None:
    slot = Slot()
    assert {slot.ends() for _ in range(5000)} == {0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0}


@pytest.mark.parametrize(("after", "moved"), [(1.0, True), (11.0, False)])
def test_one_that_got_somewhere_puts_an_end_to_it(after: float, moved: bool) -> None:
    slot = Slot()
    assert [slot.ends() for _ in range(4)][-1] == 4.0
    assert slot.ends(after=after, moved=moved) == 0.0
    assert [slot.ends() for _ in range(3)] == [0.0, 1.0, 2.0]


def test_those_that_are_replaced_while_they_leave_count_once() -> None:
    slot = Slot()
    assert [slot.ends(phase=NodePhase.LEAVING, reason=EndReason.NONE) for _ in range(3)] == [0.0, 1.0, 2.0]
    slot.number -= 1
    slot.seen(NodePhase.FAILED, EndReason.KILLED)
    slot.number += 1
    assert slot.ends() == 4.0


@pytest.mark.parametrize("reason", [EndReason.STOPPED, EndReason.ERROR, EndReason.OUT_OF_MEMORY])
def test_other_ends_are_not_in_vain(reason: EndReason) -> None:
    slot = Slot()
    assert [slot.ends(reason=reason) for _ in range(4)] == [0.0] * 4


def test_a_pause_passes() -> None:
    slot = Slot()
    assert [slot.ends() for _ in range(3)][-1] == 2.0
    slot.now += 1.5
    assert slot.pauses.pause(slot.node()) == 0.5
    assert slot.pauses.waits("worker-3")
    slot.now += 1.0
    assert slot.pauses.pause(slot.node()) == 0.0
    slot.pauses.started("worker-3")
    assert not slot.pauses.waits("worker-3")


def test_programs_that_fail_are_tried_again_after_pauses_from_the_first_time_on() -> None:
    slot = Slot(after_failures=True)
    pauses = []
    for failures in (0, 1, 2, 3, 9):
        slot.number += 1
        pauses.append(slot.pauses.pause(slot.node(failures)))
    assert pauses == [0.0, 1.0, 2.0, 4.0, 30.0]
    assert Slot().pauses.pause(slot.node(failures=3)) == 0.0


class Rejecting(Platform):
    """A machine that ends every node as soon as it is started; a flood of them it does not answer for ever."""

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
    """What happens while a job runs there, in no time."""
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
def test_a_cluster_that_takes_no_pod_is_not_flooded(tmp_path: Path, flags: dict[str, str]) -> None:
    platform = Rejecting()

    async def ten_minutes(master: Master) -> None:
        await asyncio.sleep(600)

    on(platform, JobSpec.build(job_name="rejected", num_workers=1, **flags), tmp_path, ten_minutes)
    assert 20 < len(platform.started) < 30


def test_who_waits_for_its_turn_and_is_not_needed_any_more_does_not_begin(tmp_path: Path) -> None:
    platform = Rejecting()

    async def fewer(master: Master) -> None:
        await asyncio.sleep(100)
        first, second = master.state.roster.alive("worker")
        scale(master, {"worker": 1})
        await asyncio.sleep(1)
        assert master.state.roster.alive("worker") == [first]
        assert master.state.roster.nodes[second.name].reason is EndReason.STOPPED

    on(platform, JobSpec.build(job_name="fewer", num_workers=2, job_command="true"), tmp_path, fewer)
