"""A checkpoint that is asked for before a job is suspended: what it costs, and when there is none to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.master.commands.checkpoints import RequestCheckpoint
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.settings import JobSettings

SETTINGS = {"workers": 2, "servers": 1, "batch_size": 4, "shard_size": 8, "epochs": 2}


def after_steps(toy_job: Callable[..., Any], steps: int, **settings: Any) -> Any:
    job = toy_job(JobSettings(**{**SETTINGS, **settings}))
    job.start_nodes()
    while job.state.ledger.steps < steps:
        assert step(job)
    return job


def step(job: Any) -> bool:
    return any(job.work(worker) for worker in list(job.workers.values())) or job.master_step()


def test_requested_checkpoint_is_saved_in_the_middle_of_an_epoch(toy_job: Callable[..., Any]) -> None:
    job = after_steps(toy_job, 5)
    job.do(RequestCheckpoint())
    assert job.state.awaits_checkpoint
    assert job.replayed().awaits_checkpoint
    while job.state.awaits_checkpoint:
        assert step(job)
    assert job.state.saved.step >= 5
    assert job.state.ledger.epoch("training") == 0
    # The job goes on, and counts everything once.
    job.run()
    audit = audit_ledger(job.state.ledger)
    assert audit.exact
    assert sum(row.again for row in audit.rows) == 0


@pytest.mark.parametrize(
    ("steps", "settings"), [(0, {}), (5, {"saves": False})], ids=["nothing trained", "no folder"]
)
def test_job_with_nothing_to_save_is_ready_at_once(
    toy_job: Callable[..., Any], steps: int, settings: dict[str, Any]
) -> None:
    job = after_steps(toy_job, steps, **settings)
    job.do(RequestCheckpoint())
    assert not job.state.awaits_checkpoint


def test_second_request_without_progress_saves_no_second_checkpoint(toy_job: Callable[..., Any]) -> None:
    job = after_steps(toy_job, 5)
    job.do(RequestCheckpoint())
    while job.state.awaits_checkpoint:
        assert job.master_step() or step(job)
    assert job.state.ledger.steps == job.state.saved.step
    job.do(RequestCheckpoint())
    assert not job.state.awaits_checkpoint


def test_end_of_the_training_ends_the_wait(toy_job: Callable[..., Any]) -> None:
    job = after_steps(toy_job, 5)
    job.do(RequestCheckpoint())
    job.run()
    assert not job.state.awaits_checkpoint
