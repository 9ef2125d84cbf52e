"""A missing parameter server is given up after a timeout, however often checkpoints are taken meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.checkpoints import FinishCheckpoint
from elasticdl.master.servers.rebalancer import Rebalancer
from elasticdl.master.settings import JobSettings


@pytest.fixture
def job(toy_job: Any) -> Any:
    """A job with a checkpoint every second batch, which has lost one of its three servers."""
    started = toy_job(
        JobSettings(servers=3, replicas=2, batch_size=5, shard_size=10, checkpoint_steps=2, epochs=100),
        sizes={"training": 100},
    )
    started.start_nodes()
    started.end("ps-2")
    return started


@pytest.fixture
def moving(job: Any) -> Rebalancer:
    spec = JobSpec.build(model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_ps=3)
    master: Any = SimpleNamespace(state=job.state, do=job.do, spec=spec, plan=job.plan)
    return Rebalancer(master, SimpleNamespace(), lambda: 0.0)  # type: ignore[arg-type]


def begin_checkpoint(job: Any) -> None:
    (worker,) = job.workers.values()
    while job.state.cycle.pending is None:
        assert job.work(worker) or job.master_step()


def end_checkpoint(job: Any) -> None:
    job.do(FinishCheckpoint(barrier=job.state.cycle.pending.barrier, path="somewhere"))


def look(moving: Rebalancer, now: float) -> None:
    asyncio.run(moving.look(now))


def test_the_others_make_new_copies_when_a_checkpoint_is_written(job: Any, moving: Rebalancer) -> None:
    now = 0.0
    while not job.state.placing.moving and now < 12.0:
        begin_checkpoint(job)
        look(moving, now)
        end_checkpoint(job)
        if not job.state.placing.moving:
            look(moving, now + 0.5)
        now += 1.0
    assert set(job.state.placing.map.migrating.values()) == {0, 1}


def test_timeout_runs_while_checkpoint_is_written(job: Any, moving: Rebalancer) -> None:
    begin_checkpoint(job)
    look(moving, 0.0)
    look(moving, 9.0)
    assert job.state.placing.waits
    look(moving, 11.0)
    assert not job.state.placing.waits
    assert not job.state.placing.moving, "buckets stay where they are"
    end_checkpoint(job)
    assert job.state.placing.moving


def test_one_that_comes_while_one_is_written_is_filled(job: Any, moving: Rebalancer) -> None:
    begin_checkpoint(job)
    look(moving, 0.0)
    look(moving, 11.0)
    job.start_nodes()
    end_checkpoint(job)
    assert set(job.state.placing.map.migrating.values()) == {2}
