"""The end of each epoch is evaluated, saved where it should be, and kept for callbacks that begin late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticdl.master.services.directives import directive_for, epoch_ends
from elasticdl.master.settings import JobSettings

PLAN = JobSettings(workers=1, servers=0, batch_size=4, shard_size=8, epochs=6, evaluates=True)


def run(toy_job: Callable[..., Any], plan: JobSettings) -> Any:
    job = toy_job(plan, sizes={"training": 100, "evaluation": 20})
    job.start_nodes()
    job.run()
    assert job.state.outcome == "succeeded"
    return job


@pytest.mark.parametrize("saves", [0, 1, 2, 3, 5, 7, 24, 25, 26])
@pytest.mark.parametrize("evaluations", [0, 2, 24, 25, 26])
def test_every_epoch_is_evaluated_whatever_else_is_asked_for(
    toy_job: Callable[..., Any], saves: int, evaluations: int
) -> None:
    job = run(toy_job, replace(PLAN, checkpoint_steps=saves, evaluation_steps=evaluations))
    found = [result["epoch"] for result in job.state.results if result["epoch"] >= 0]
    assert found == list(range(6))
    assert [ended["epoch"] for ended in job.state.epochs_ended] == list(range(6))
    assert all(ended["metrics"] for ended in job.state.epochs_ended)


def test_all_ends_are_kept_and_the_newest_are_sent(toy_job: Callable[..., Any]) -> None:
    state = run(toy_job, PLAN).state
    assert [ended.epoch for ended in epoch_ends(state.epochs_ended)] == list(range(6))
    sent = directive_for(state, "worker-0", save_to="").epochs_ended
    assert [ended.epoch for ended in sent] == [3, 4, 5]


@pytest.mark.parametrize(("saves", "evaluations"), [(20, 0), (0, 20), (20, 20)])
def test_barrier_requested_in_epoch_and_passed_at_its_end(
    toy_job: Callable[..., Any], saves: int, evaluations: int
) -> None:
    """Workers report now and then: the epoch may be over when they receive the barrier."""
    plan = replace(PLAN, checkpoint_steps=saves, evaluation_steps=evaluations, epochs=2, shard_size=100)
    job = toy_job(plan, sizes={"training": 100, "evaluation": 20})
    job.start_nodes()
    (worker,) = job.workers.values()
    while job.state.barrier is None:
        job.work(worker)
    while job._train(worker):
        pass
    assert job.state.barrier is not None
    assert job.state.ledger.epoch_done("training")
    job.run()
    assert [ended["epoch"] for ended in job.state.epochs_ended if ended["metrics"]] == [0, 1]
    assert job.state.saved is not None
    assert job.state.saved.step == 50
