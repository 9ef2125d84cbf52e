"""Seconds of the job that workers wait for slower ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.health.job_view import JobView, NodeView
from elasticdl.master.health.straggler_time import StragglerTime, waiting_share
from elasticdl.master.kubernetes.pod_master import straggler_seconds
from elasticdl.master.ledger.shard_types import Lease
from elasticdl.master.master import Master
from elasticdl.master.status import job_status
from elasticdl.platforms.platform import NodePhase, Platform
from tests.master.fake_time import Clock


def job(*nodes: NodeView) -> JobView:
    return JobView(nodes=nodes)


def working(number: int) -> NodeView:
    return NodeView(name=f"worker-{number}", role="worker", shards=1)


def without_shard(number: int) -> NodeView:
    return NodeView(name=f"worker-{number}", role="worker", is_without_work=True)


def at_barrier(number: int) -> NodeView:
    return NodeView(name=f"worker-{number}", role="worker", shards=1, is_at_barrier=True)


@pytest.mark.parametrize("waiting", [without_shard, at_barrier])
def test_wait_of_some_workers_counts_by_their_share(waiting: Callable[[int], NodeView]) -> None:
    time = StragglerTime()
    view = job(working(0), waiting(1), waiting(2), waiting(3))
    for now in (100.0, 101.0, 104.0):
        time.observe(view, now)
    assert time.seconds == 3.0


def test_wait_ends_with_the_check_that_sees_its_end() -> None:
    time = StragglerTime()
    time.observe(job(working(0), without_shard(1)), 10.0)
    time.observe(job(working(0), working(1)), 12.0)
    time.observe(job(working(0), working(1)), 50.0)
    assert time.seconds == 1.0


@pytest.mark.parametrize(
    "view",
    [
        job(),
        job(working(0), working(1)),
        # The model is being saved, or nothing has been announced yet.
        job(at_barrier(0), at_barrier(1)),
        job(without_shard(0), without_shard(1)),
        # It has not asked for a shard: its program does something of its own.
        job(working(0), NodeView(name="worker-1", role="worker")),
        job(working(0), NodeView(name="worker-1", role="worker", is_without_work=True, is_leaving=True)),
        job(working(0), NodeView(name="worker-1", role="worker", is_without_work=True, has_joined=False)),
        job(working(0), NodeView(name="ps-0", role="ps", is_without_work=True)),
    ],
)
def test_other_states_are_no_wait_for_stragglers(view: JobView) -> None:
    assert waiting_share(view) == 0.0


def test_gap_of_a_suspended_master_counts_in_part() -> None:
    time = StragglerTime(seconds=7.0, most_seconds=10.0)
    view = job(working(0), without_shard(1))
    time.observe(view, 0.0)
    time.observe(view, 3600.0)
    assert time.seconds == 12.0
    # A clock that jumps back takes nothing away.
    time.observe(view, 0.0)
    assert time.seconds == 12.0


@pytest.fixture
def master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Master]:
    """A job of two workers with two shards in an epoch."""
    spec = JobSpec.build(
        job_name="slow",
        model_zoo="zoo",
        model_def="a.b.c",
        training_data="data",
        num_workers=2,
        num_ps=1,
        minibatch_size=10,
        num_minibatches_per_task=1,
    )
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}, clock=clock)
    made.recover()
    for name in ("worker-0", "worker-1", "ps-0"):
        made.do(JoinNode(node=name, incarnation="i", address="here"))
        made.state.roster.nodes[name].phase = NodePhase.RUNNING
    made.do(AnnounceDataset(dataset="training", size=20))
    yield made
    made._journal.close()


def report(master: Master, lease: Lease) -> None:
    """The worker has trained all of the shard."""
    master.do(
        ReportProgress(
            worker=lease.worker,
            report_id=1,
            progress=[(lease.lease_id, lease.end, 1, False)],
            bad=[],
            loss_sum=0.0,
            loss_batches=0,
            stop_training=False,
        )
    )


def test_worker_without_a_shard_at_the_end_of_an_epoch_waits_for_the_other(
    master: Master, clock: Clock
) -> None:
    first, second = (
        master.do(LeaseShards(dataset="training", worker=worker, count=1, request_id=1))[0]
        for worker in ("worker-0", "worker-1")
    )
    asyncio.run(master.supervisor.check_nodes())
    clock.now += 5
    report(master, first)
    asyncio.run(master.supervisor.check_nodes())
    assert job_status(master).straggler_seconds == 0.0
    clock.now += 4
    asyncio.run(master.supervisor.check_nodes())
    assert job_status(master).straggler_seconds == 2.0
    assert master.state.ledger.lease_of(second.lease_id) is not None


def test_status_counts_samples_that_are_trained_again(master: Master) -> None:
    [lease] = master.do(LeaseShards(dataset="training", worker="worker-0", count=1, request_id=1))
    report(master, lease)
    master.state.ledger.rollback(None)
    status = job_status(master)
    assert (status.samples_done, status.samples_again) == (0, 10)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (JobStatus(straggler_seconds=12.5).to_text(), 12.5),
        ("", 0.0),
        ('{"version": 99}', 0.0),
    ],
)
def test_next_master_continues_the_count(text: str, seconds: float) -> None:
    assert straggler_seconds({"data": {"status.json": text}}) == seconds
