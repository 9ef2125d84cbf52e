"""A job that runs once more after its end: one ledger over all attempts, and the model of the newest checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.master.commands.checkpoints import SavedCheckpoint
from elasticdl.master.commands.job import FinishTask, ResumeJob, StopJob
from elasticdl.master.commands.nodes import ReportFailure
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.master import Master
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, EndReason, Platform

SIZES = {"training": 100, "evaluation": 30}
TRAINING = JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, epochs=3, evaluates=True)
KINDS = {
    "servers": TRAINING,
    "by steps": JobSettings(
        workers=2, servers=2, batch_size=4, shard_size=8, epochs=2, checkpoint_steps=5, has_output=True
    ),
    "one worker": JobSettings(workers=1, batch_size=4, shard_size=8, epochs=2, has_output=True),
    "never saves": JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, epochs=2, saves=False),
    "evaluate": JobSettings(kind="evaluate", workers=2, batch_size=4, shard_size=8, evaluates=True),
}


def begun(toy_job: Callable[..., Any], plan: JobSettings = TRAINING, *, steps: int, seed: int = 0) -> Any:
    """A job in which so much has happened, in an order that could be."""
    names = ("training", "evaluation") if plan.evaluates else ("training",)
    names = ("evaluation",) if plan.kind == "evaluate" else names
    job = toy_job(plan, sizes={name: SIZES[name] for name in names})
    dice = random.Random(seed)
    for _ in range(steps):
        if job.state.outcome:
            break
        job.start_nodes()
        choices = [job.master_step, *(lambda w=w: job.work(w) for w in job.workers.values())]
        dice.choice(choices)()
    return job


def lose_all(job: Any, attempt: int) -> None:
    """Everything is killed at once, or has ended; then the job is resumed."""
    job.workers.clear()
    job.do(ResumeJob(attempt=attempt, saved=job.state.saved))


def assert_exact(job: Any) -> None:
    assert job.state.outcome == "succeeded"
    audit = audit_ledger(job.state.ledger)
    assert audit.exact, audit.reason
    assert job.state.ledger.check() == []
    # What the journal has is what there is.
    assert job.replayed().snapshot() == job.state.snapshot()


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("seed", range(12))
def test_job_interrupted_anywhere_ends_exact_when_resumed(
    toy_job: Callable[..., Any], plan: JobSettings, seed: int
) -> None:
    dice = random.Random(seed)
    job = begun(toy_job, plan, steps=dice.randrange(250), seed=seed)
    for attempt in (2, 3):
        if job.state.outcome == "succeeded":
            break
        lose_all(job, attempt)
        assert not job.state.roster.alive("worker") or all(
            not node.incarnation for node in job.state.roster.alive("worker")
        )
        for _ in range(dice.randrange(60)):
            if job.state.outcome:
                break
            job.start_nodes()
            dice.choice([job.master_step, *(lambda w=w: job.work(w) for w in job.workers.values())])()
    job.run(random_source=dice)
    assert_exact(job)


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("steps", [0, 2, 4, 25])
def test_stopped_job_ends_exact_when_resumed(
    toy_job: Callable[..., Any], plan: JobSettings, steps: int
) -> None:
    # An evaluation is over soon.
    job = begun(toy_job, plan, steps=min(steps, 5) if plan.kind == "evaluate" else steps)
    job.do(StopJob(reason="Ctrl-C"))
    if not job.state.outcome:
        job.run()
    assert job.state.outcome == "stopped"
    lose_all(job, 2)
    assert (job.state.outcome, job.state.stopping) == ("", "")
    job.run()
    assert_exact(job)


def test_at_most_the_shards_held_during_a_stop_are_trained_again(toy_job: Callable[..., Any]) -> None:
    """Workers go on with them while the checkpoint is written."""
    job = begun(toy_job, steps=60)
    job.do(StopJob(reason="Ctrl-C"))
    job.run()
    lose_all(job, 2)
    job.run()
    again = sum(row.again for row in audit_ledger(job.state.ledger).rows)
    assert again <= TRAINING.workers * TRAINING.shard_size


def test_second_stop_saves_a_checkpoint_of_its_own(toy_job: Callable[..., Any]) -> None:
    job = begun(toy_job, steps=40)
    job.do(StopJob(reason="Ctrl-C"))
    job.run()
    first = job.state.saved
    lose_all(job, 2)
    for _ in range(40):
        job.start_nodes()
        for worker in list(job.workers.values()):
            job.work(worker)
        if job.state.ledger.steps > first.step + 3:
            break
    job.do(StopJob(reason="Ctrl-C"))
    assert not job.state.outcome
    job.run()
    assert job.state.outcome == "stopped"
    assert job.state.saved.step > first.step


def test_failure_is_forgotten_when_its_job_is_resumed(toy_job: Callable[..., Any]) -> None:
    """The cause may have been removed: neither nodes nor shards start with the failures of the attempt before."""
    plan = JobSettings(workers=1, servers=1, batch_size=4, shard_size=8, max_shard_failures=1)
    job = toy_job(plan, sizes={"training": 100})
    job.start_nodes()

    def fail() -> None:
        worker = next(iter(job.workers.values()))
        job.work(worker)
        (lease,) = job.state.ledger.held_by(worker.name)
        job.do(
            ReportFailure(
                node=worker.name, kind="program", message="bad", traceback="at x", lease_id=lease.lease_id
            )
        )
        job.end(worker.name, EndReason.ERROR, 1)
        job.start_nodes()

    fail()
    fail()
    assert job.state.outcome == "failed"
    lose_all(job, 2)
    assert (job.state.message, job.state.traceback, job.state.last_error) == ("", "", "")
    job.start_nodes()
    fail()
    assert not job.state.outcome
    job.run()
    assert_exact(job)


def test_job_with_a_wrong_definition_is_resumed_with_new_nodes(toy_job: Callable[..., Any]) -> None:
    job = toy_job(TRAINING, sizes=SIZES)
    job.end("worker-0", EndReason.ERROR, EXIT_DEFINITION_ERROR)
    assert job.state.outcome == "failed"
    lose_all(job, 2)
    assert {node.name for node in job.state.roster.wanted()} == {"ps-1", "worker-2", "worker-3"}
    job.run()
    assert_exact(job)


def test_failed_export_is_repeated(toy_job: Callable[..., Any]) -> None:
    job = toy_job(KINDS["one worker"], sizes={"training": 100})
    while job.state.task != "export":
        job.start_nodes()
        if not any(job.work(worker) for worker in list(job.workers.values())):
            assert job.master_step()
    job.do(FinishTask(task="export", result="", error="the disk is full"))
    assert job.state.outcome == "failed"
    done = len(job.trained)
    lose_all(job, 2)
    job.run()
    assert_exact(job)
    # The model of the last checkpoint is exported: no sample is trained again.
    assert len(job.trained) == done


def test_same_attempt_again_changes_nothing(toy_job: Callable[..., Any]) -> None:
    """A master that was killed gets its attempt once more."""
    job = begun(toy_job, steps=50)
    lose_all(job, 2)
    job.start_nodes()
    for worker in list(job.workers.values()):
        job.work(worker)
    before = job.state.snapshot()
    job.do(ResumeJob(attempt=2, saved=None))
    assert job.state.snapshot() == before


def test_job_goes_back_to_the_checkpoint_found_on_disk(toy_job: Callable[..., Any]) -> None:
    """The journal may lack the end of the newest one."""
    job = begun(toy_job, steps=150)
    saved = job.state.saved
    assert saved is not None
    job.workers.clear()
    job.do(ResumeJob(attempt=2, saved=SavedCheckpoint(path="newest", step=saved.step, ledger=saved.ledger)))
    assert (job.state.restore_from, job.state.first_step) == ("newest", saved.step)
    assert job.state.generation == 2


# -- the master ----------------------------------------------------------------------------------------------


def test_master_resumes_its_attempt_once(
    new_master: Callable[..., Master], tmp_path: Path, nowhere: Platform
) -> None:
    first = new_master()
    first.do(StopJob(reason="Ctrl-C"))
    assert first.state.outcome == "stopped"
    first._journal.close()
    for _ in range(2):
        again = Master(
            spec=first.spec, folder=tmp_path, platform=nowhere, token="a token for tests", environment={}
        )
        again.recover(attempt=2)
        assert (again.state.outcome, again.state.ending.attempt) == ("", 2)
        assert again.state.generation == 2
        again._journal.close()
        again._events.close()


def test_checkpoint_that_is_gone_is_an_error(
    new_master: Callable[..., Master], tmp_path: Path, nowhere: Platform
) -> None:
    first = new_master()
    first.state.cycle.set_saved(SavedCheckpoint(path=str(tmp_path / "gone"), step=3, ledger=None))
    first.commands.compact()
    first._journal.close()
    again = Master(
        spec=first.spec, folder=tmp_path, platform=nowhere, token="a token for tests", environment={}
    )
    with pytest.raises(UserError, match="gone, from which job new would be resumed, is gone"):
        again.recover(attempt=2)
    again._journal.close()
    again._events.close()
