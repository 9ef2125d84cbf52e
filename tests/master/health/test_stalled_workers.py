"""A worker that holds a shard and reports no progress is stalled; one that waits for something else is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.checkpoints import ReachBarrier
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import JoinNode, ReportHungNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.health.decisions import FailureKind
from elasticdl.master.master import Master
from elasticdl.master.nodes.node_supervisor import job_view
from elasticdl.master.status import job_status
from elasticdl.platforms.platform import Platform
from tests.master.fake_time import Clock


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
    master.detector.lease_granted(worker, master.clock())


def stalled(master: Master, clock: Clock) -> list[str]:
    decisions = master.detector.check(job_view(master.state, lambda worker: False), clock())
    return [decision.node for decision in decisions if decision.kind is FailureKind.STALLED]


def test_worker_without_progress_is_stalled_after_a_multiple_of_the_median_batch(
    master: Master, clock: Clock
) -> None:
    lease(master, "worker-0")
    lease(master, "worker-1")
    master.detector.progress_reported("worker-0", clock(), batch_seconds=8.0)
    master.detector.progress_reported("worker-1", clock(), batch_seconds=8.0)
    clock.now += 79
    master.detector.progress_reported("worker-0", clock(), batch_seconds=8.0)
    assert stalled(master, clock) == []
    clock.now += 2
    assert stalled(master, clock) == ["worker-1"]


def test_worker_with_short_batches_is_not_stalled_before_the_floor(master: Master, clock: Clock) -> None:
    lease(master, "worker-0")
    master.detector.progress_reported("worker-0", clock(), batch_seconds=0.001)
    clock.now += 29
    assert stalled(master, clock) == []
    clock.now += 2
    assert stalled(master, clock) == ["worker-0"]


def test_stall_timer_begins_with_the_lease(master: Master, clock: Clock) -> None:
    master.detector.progress_reported("worker-0", clock(), batch_seconds=1.0)
    clock.now += 10_000
    assert stalled(master, clock) == []
    lease(master, "worker-0")
    assert stalled(master, clock) == []


def test_worker_at_a_barrier_is_not_stalled_but_one_that_does_not_come_is(
    master: Master, clock: Clock
) -> None:
    for worker in ("worker-0", "worker-1"):
        lease(master, worker)
        master.detector.progress_reported(worker, clock(), batch_seconds=1.0)
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
    assert stalled(master, clock) == ["worker-1"]


def test_stalled_worker_is_killed_and_the_log_says_why(
    master: Master, clock: Clock, stopped: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    lease(master, "worker-0")
    master.detector.progress_reported("worker-0", clock(), batch_seconds=0.1)
    clock.now += 31
    asyncio.run(master.supervisor.check_nodes())
    assert stopped == ["worker-0"]
    assert caplog.messages.count("Killing worker-0: stalled for 31 s; requeueing 1 shard") == 1
    # Its timer begins again: the platform has yet to report its end.
    clock.now += 30
    asyncio.run(master.supervisor.check_nodes())
    assert stopped == ["worker-0"]


def test_worker_that_hangs_before_its_first_batch_is_stalled(master: Master, clock: Clock) -> None:
    lease(master, "worker-0")
    clock.now += 600
    assert stalled(master, clock) == []
    clock.now += 601
    assert stalled(master, clock) == ["worker-0"]


def test_stalls_count_against_the_retries_and_fail_the_job(master: Master) -> None:
    master.state.roster.max_failures = 0
    master.do(ReportHungNode(node="worker-0", stalled_seconds=63.0))
    assert master.state.outcome == "failed"
    assert "worker-0 stalled for 63 s" in master.state.message


def test_status_says_that_the_worker_stalled(master: Master, clock: Clock) -> None:
    lease(master, "worker-0")
    master.detector.progress_reported("worker-0", clock(), batch_seconds=0.001)
    clock.now += 31
    asyncio.run(master.supervisor.check_nodes())
    (report,) = [node for node in job_status(master).nodes if node.name == "worker-0"]
    assert report.message == "stalled for 31 s"
