"""A worker is lost, and the parameter servers do not say in time which of its batches they have: what it has not
reported is given to others, and the audit tells that it may count twice.
"""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.audit import Audit, render
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.settings import JobSettings

PLAN = JobSettings(servers=1, workers=2, batch_size=5, shard_size=20, saves=True, checkpoint_steps=2)
LINE = "Up to 15 samples may count twice in the model"


@pytest.fixture
def job(toy_job: Any) -> Any:
    """Its first worker has a shard of 20 samples, and has reported 5 of them."""
    job = toy_job(PLAN)
    job.start_nodes()
    worker = job.workers["worker-0"]
    while not job.trained:
        job.work(worker)
    return job


def audit(state: JobState) -> Audit:
    return audit_ledger(state.ledger)


def test_unreported_batches_of_lost_worker_may_count_twice(job: Any) -> None:
    job.end("worker-0", in_doubt=True)
    found = audit(job.state)
    assert found.twice == 15
    assert [row.again for row in found.rows] == [15]
    assert LINE in render(found)


def test_accounted_batches_count_once(job: Any) -> None:
    job.end("worker-0")
    found = audit(job.state)
    assert (found.twice, [row.again for row in found.rows]) == (0, [0])
    assert "twice" not in render(found)


def test_job_with_unaccounted_batches_has_exact_audit(job: Any) -> None:
    job.end("worker-0", in_doubt=True)
    job.run()
    found = audit(job.state)
    assert found.exact
    assert LINE in render(found)
    assert render(found).splitlines()[-1].startswith("Exact: ")


@pytest.mark.parametrize("shorten", [Audit.compacted, Audit.totals_only])
def test_compacted_audit_names_unaccounted_batches(job: Any, shorten: Any) -> None:
    job.end("worker-0", in_doubt=True)
    shortened = shorten(audit(job.state))
    assert LINE in render(Audit.from_json(shortened.to_json()))


def test_a_master_that_comes_back_knows_it(job: Any) -> None:
    job.end("worker-0", in_doubt=True)
    state = JobState(PLAN)
    state.restore(job.state.snapshot())
    assert audit(state).twice == audit(job.replayed()).twice == 15


def save(job: Any) -> None:
    while job.state.saved is None:
        job.start_nodes()
        for worker in list(job.workers.values()):
            job.work(worker)
        job.master_step()


def test_the_model_that_the_job_began_with_has_none_of_it(job: Any) -> None:
    job.end("worker-0", in_doubt=True)
    job.end("ps-0")
    assert job.state.generation == 2
    assert audit(job.state).twice == 0


def test_a_model_that_was_saved_before_has_none_of_it(job: Any) -> None:
    save(job)
    while not job.state.ledger.held_by("worker-0"):
        job.work(job.workers["worker-0"])
    job.end("worker-0", in_doubt=True)
    assert audit(job.state).twice > 0
    job.end("ps-0")
    assert job.state.generation == 2
    assert audit(job.state).twice == 0


def test_a_model_that_was_saved_with_it_has_it_for_good(job: Any) -> None:
    job.end("worker-0", in_doubt=True)
    save(job)
    job.end("ps-0")
    assert job.state.generation == 2
    assert audit(job.state).twice == 15
