"""A worker that holds a shard and does not move loses it; one that waits for something else does not. Nor may one keep
it that has failed and does not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.checkpoints import ReachBarrier
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import JoinNode, ObserveNode, ReportFailure
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.master import Master
from elasticdl.platforms.platform import Platform
from tests.master.fake_time import Clock
from tests.master.node_statuses import node_status


@pytest.fixture
def master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(
        job_name="stalls",
        model_zoo="zoo",
        model_def="a.b.c",
        training_data="data",
        num_workers=2,
        num_ps=1,
        stall_factor=10,
        stall_floor_seconds=30,
    )
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}, clock=clock)
    made.recover()
    for name in ("worker-0", "worker-1", "ps-0"):
        made.do(JoinNode(node=name, incarnation="i", address="here"))
    made.do(AnnounceDataset(dataset="training", size=10_000))
    yield made
    made._journal.close()


def lease(master: Master, worker: str, request_id: int = 1) -> None:
    assert master.do(LeaseShards(dataset="training", worker=worker, count=1, request_id=request_id))
    master.liveness.leased(worker)


def test_no_progress_for_a_multiple_of_the_median(master: Master, clock: Clock) -> None:
    lease(master, "worker-0")
    lease(master, "worker-1")
    master.liveness.moved("worker-0", batch_seconds=8.0)
    master.liveness.moved("worker-1", batch_seconds=8.0)
    clock.now += 79
    master.liveness.moved("worker-0", batch_seconds=8.0)
    assert master.liveness.stalled(clock()) == []
    clock.now += 2
    assert master.liveness.stalled(clock()) == ["worker-1"]


def test_never_before_the_floor(master: Master, clock: Clock) -> None:
    lease(master, "worker-0")
    master.liveness.moved("worker-0", batch_seconds=0.001)
    clock.now += 29
    assert master.liveness.stalled(clock()) == []
    clock.now += 2
    assert master.liveness.stalled(clock()) == ["worker-0"]


def test_who_waited_without_a_shard_starts_anew_with_the_next(master: Master, clock: Clock) -> None:
    master.liveness.moved("worker-0", batch_seconds=1.0)
    clock.now += 10_000
    assert master.liveness.stalled(clock()) == []
    lease(master, "worker-0")
    assert master.liveness.stalled(clock()) == []


def test_who_stands_still_for_a_cut_is_not_blamed_but_who_does_not_come_is(
    master: Master, clock: Clock
) -> None:
    for worker in ("worker-0", "worker-1"):
        lease(master, worker)
        master.liveness.moved(worker, batch_seconds=1.0)
        held = master.state.ledger.held_by(worker)[0]
        master.do(
            ReportProgress(
                worker=worker,
                report_id=1,
                progress=[(held.lease_id, held.start + 64, 1, False)],
                bad=[],
                loss_sum=0.0,
                loss_batches=0,
                stop_training=False,
            )
        )
    master.do(StopJob(reason="test"))
    assert master.state.barrier is not None
    master.do(ReachBarrier(worker="worker-0", barrier=master.state.barrier.number, files=[]))
    clock.now += 10_000
    assert master.liveness.stalled(clock()) == ["worker-1"]


def test_the_first_batch_may_take_its_time(master: Master, clock: Clock) -> None:
    """Before any batch is done nobody knows how long one takes."""
    lease(master, "worker-0")
    clock.now += 10_000
    assert master.liveness.stalled(clock()) == []


def test_who_has_failed_and_does_not_end_is_ended(master: Master, clock: Clock, stopped: list[str]) -> None:
    """Also before anybody has done a batch, and whoever else hangs."""

    def look() -> None:
        asyncio.run(master.end_the_stuck(clock()))

    lease(master, "worker-0")
    lease(master, "worker-1")
    master.do(ReportFailure(node="worker-0", kind="program", message="bad", traceback="", lease_id=1))
    look()
    clock.now += 29
    look()
    assert stopped == []
    clock.now += 2
    look()
    look()
    assert stopped == ["worker-0"]
    for _ in range(2):
        clock.now += 31
        look()
    assert stopped == ["worker-0", "worker-0"]
    status = {"name": "worker-0", "role": "worker", "phase": "failed", "reason": "stopped", "message": ""}
    master.do(ObserveNode(status=node_status({**status, "exit_code": None})))
    assert [lease.worker for lease in master.state.ledger.held("training")] == ["worker-1"]
    for _ in range(2):
        clock.now += 31
        look()
    assert stopped == ["worker-0", "worker-0"]


def test_who_has_failed_and_ended_is_left_alone(master: Master, clock: Clock, stopped: list[str]) -> None:
    """While servers that do not answer are asked what they have of it."""
    lease(master, "worker-0")
    master.do(ReportFailure(node="worker-0", kind="program", message="bad", traceback="", lease_id=1))
    master.liveness.ended("worker-0")
    for _ in range(3):
        asyncio.run(master.end_the_stuck(clock()))
        clock.now += 31
    assert stopped == []
