"""What a job with thousands of nodes costs its master does not grow with their square."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import JoinNode, ObserveNode, ScaleRole
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards
from elasticdl.master.job_state import JobState
from elasticdl.master.lifecycle.roster import Node, NodeTable
from elasticdl.master.master import Master
from elasticdl.master.services.directive_board import DirectiveBoard, DirectiveStream
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus
from tests.master.conftest import Nowhere


def _spec(workers: int) -> JobSpec:
    return JobSpec.build(
        job_name="many",
        model_zoo="z",
        model_def="a.b.c",
        training_data="d",
        distribution_strategy="ParameterServerStrategy",
        num_workers=workers,
        num_ps=1,
    )


def _calls_of(call: Callable[[], object]) -> int:
    """How many Python functions it calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def _calls_of_a_lease(workers: int) -> int:
    state = JobState(JobSettings.of(_spec(workers)))
    state.apply(JoinNode(node="ps-0", incarnation="i", address="here:1"))
    for number in range(workers):
        state.apply(JoinNode(node=f"worker-{number}", incarnation="i", address=""))
    state.apply(AnnounceDataset(dataset="training", size=10**6))
    return _calls_of(
        lambda: state.apply(LeaseShards(worker="worker-0", dataset="training", count=1, request_id=1))
    )


def test_lease_of_a_shard_costs_the_same_with_many_workers() -> None:
    assert _calls_of_a_lease(200) == _calls_of_a_lease(2)


def test_killed_worker_is_replaced_by_the_next_number() -> None:
    state = JobState(JobSettings.of(_spec(3)))
    status = NodeStatus(name="worker-1", role="worker", phase=NodePhase.FAILED, reason=EndReason.KILLED)
    state.apply(ObserveNode(status=status))
    assert {node.name for node in state.roster.alive("worker")} == {"worker-0", "worker-2", "worker-3"}


def test_node_table_finds_the_nodes_of_a_role_after_one_is_deleted() -> None:
    table = NodeTable()
    for role, number in (("worker", 0), ("ps", 0), ("worker", 1)):
        name = f"{role}-{number}"
        table[name] = Node(name=name, role=role, number=number, slot=number)
    del table["worker-0"]
    assert [node.name for node in table.of_role("worker")] == ["worker-1"]
    assert [node.name for node in table.of_role("ps")] == ["ps-0"]
    assert not list(table.of_role("chief"))


@pytest.fixture
def master(tmp_path: Path) -> Master:
    (tmp_path / "journal").mkdir()
    made = Master(spec=_spec(3), folder=tmp_path, platform=Nowhere(), token="t", environment={})
    made.recover()
    made.do(JoinNode(node="worker-0", incarnation="i", address=""))
    made.do(JoinNode(node="worker-1", incarnation="i", address=""))
    return made


def _woken_by(master: Master, change: Callable[[], object]) -> list[str]:
    """The workers whose streams have news after a change, of worker-0 and worker-1."""

    async def run() -> list[str]:
        board = DirectiveBoard(master)
        with board.open_stream("worker-0") as first, board.open_stream("worker-1") as second:
            streams: dict[str, DirectiveStream] = {"worker-0": first, "worker-1": second}
            for stream in streams.values():
                stream.directive()
            # The board's task begins to wait.
            await asyncio.sleep(0)
            change()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return [name for name, stream in streams.items() if stream.has_news]

    return asyncio.run(run())


def test_joining_node_wakes_no_other_stream(master: Master) -> None:
    join = JoinNode(node="worker-2", incarnation="i", address="")
    assert _woken_by(master, lambda: master.do(join)) == []


def test_drained_node_alone_is_woken(master: Master) -> None:
    scale = ScaleRole(role="worker", target=2, victims=["worker-1"])
    assert _woken_by(master, lambda: master.do(scale)) == ["worker-1"]


def test_end_of_the_job_wakes_every_stream(master: Master) -> None:
    assert _woken_by(master, lambda: master.do(StopJob(reason="enough"))) == ["worker-0", "worker-1"]


def test_stream_without_news_has_the_directive_that_it_had(master: Master) -> None:
    async def run() -> None:
        with DirectiveBoard(master).open_stream("worker-0") as stream:
            assert stream.directive() == stream.directive()
            assert stream.directive().leader

    asyncio.run(run())
