"""The rules of a job one by one: epochs, callbacks, stops, failures, bad samples, lost models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.master.audit import Audit
from elasticdl.master.ledger import LedgerError
from elasticdl.master.plan import Plan
from elasticdl.master.state import JobState

PLAN = Plan(workers=2, servers=1, batch_size=4, shard_size=8, epochs=3)


def started(toy_job: Callable[..., Any], plan: Plan = PLAN, **more: Any) -> Any:
    job = toy_job(plan, **more)
    job.start_nodes()
    return job


def test_early_stopping_ends_at_the_end_of_the_epoch(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    while not job.state.task:
        assert any(job.work(worker) for worker in list(job.workers.values())) or job.master_step()
    job.do("finish_task", task=job.state.task, result="stop", error="")
    job.run()
    assert job.state.outcome == "succeeded"
    audit = Audit.of(job.state.ledger)
    assert audit.exact
    assert [(row.epoch, row.done) for row in audit.rows] == [(0, 100)]


def test_stop_saves_first_and_is_no_success(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    for _ in range(6):
        for worker in list(job.workers.values()):
            job.work(worker)
    job.do("stop", reason="Ctrl-C")
    assert not job.state.outcome
    job.run()
    assert job.state.outcome == "stopped"
    assert job.state.saved is not None
    assert job.state.saved.step == job.state.ledger.steps > 0


def test_stop_before_the_first_batch_needs_nothing_saved(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    job.do("stop", reason="Ctrl-C")
    assert job.state.outcome == "stopped"


def test_two_sizes_of_one_data_set_are_refused(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    with pytest.raises(LedgerError, match="100"):
        job.do("announce", dataset="training", size=99)


def test_a_shard_that_fails_too_often_fails_the_job_with_its_traceback(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, Plan(workers=1, servers=1, batch_size=4, shard_size=8, max_shard_failures=1))
    for number in range(2):
        worker = f"worker-{number}"
        lease = job.do("lease", dataset="training", worker=worker, count=1, request_id=1)[0]
        job.do(
            "fail",
            node=worker,
            kind="program",
            message="bad",
            traceback=f"trace {number}",
            lease_id=lease.lease_id,
        )
        if number == 0:
            from elasticdl.platforms.platform import EndReason

            job.end(worker, EndReason.ERROR, 1)
            job.start_nodes()
    assert job.state.outcome == "failed"
    assert job.state.traceback == "trace 1"


def test_more_bad_samples_than_allowed_fail_the_job(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, Plan(workers=1, servers=1, batch_size=4, shard_size=8, max_bad_records=2))
    bad = {
        "dataset": "training",
        "start": 0,
        "end": 3,
        "where": "part-0 at byte 20",
        "reason": "bad checksum",
    }
    report = {"progress": [], "loss_sum": 0.0, "loss_batches": 0, "stop_training": False}
    job.do("report", worker="worker-0", report_id=1, bad=[{**bad, "end": 2}], **report)
    assert not job.state.outcome
    job.do("report", worker="worker-0", report_id=2, bad=[bad], **report)
    assert job.state.outcome == "failed"
    assert "part-0 at byte 20" in job.state.message


def test_a_lost_server_goes_back_to_the_checkpoint_and_counts_it(toy_job: Callable[..., Any]) -> None:
    job = started(
        toy_job, Plan(workers=1, servers=1, batch_size=4, shard_size=8, epochs=1, checkpoint_steps=5)
    )
    while job.state.ledger.steps < 8 or job.state.saved is None:
        assert any(job.work(w) for w in list(job.workers.values())) or job.master_step()
    done = job.state.ledger.samples_done("training")
    job.end("ps-0")
    assert job.state.generation == 2
    assert job.state.restore_from == job.state.saved.path
    again = done - job.state.ledger.samples_done("training")
    assert again > 0
    assert job.state.ledger.again("training", 0) == again
    job.run()
    assert Audit.of(job.state.ledger).exact


def test_the_last_push_of_a_dead_worker_counts(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, Plan(workers=1, servers=1, batch_size=4, shard_size=8))
    lease = job.do("lease", dataset="training", worker="worker-0", count=1, request_id=1)[0]
    credit = {"lease_id": lease.lease_id, "position": lease.start + 4, "batches": 1}
    job.end("worker-0", credit=credit)
    assert job.state.ledger.samples_done("training") == 4
    assert job.state.ledger.steps == 1


def test_a_command_that_is_none_is_refused(toy_job: Callable[..., Any]) -> None:
    with pytest.raises(LedgerError, match="snapshot"):
        toy_job(PLAN).state.apply("snapshot", {})


def test_the_whole_state_survives_a_snapshot(toy_job: Callable[..., Any]) -> None:
    import json

    from elasticdl.master.state import JobState

    plan = Plan(
        workers=2, servers=1, batch_size=4, shard_size=8, epochs=2, evaluates=True, evaluation_steps=3
    )
    job = started(toy_job, plan, sizes={"training": 60, "evaluation": 20})
    for _ in range(25):
        again = JobState(plan)
        again.restore(json.loads(json.dumps(job.state.snapshot())))
        assert again.snapshot() == job.state.snapshot()
        job.state = again
        if not any(job.work(w) for w in list(job.workers.values())):
            job.master_step()
    job.run()
    assert job.state.outcome == "succeeded"


def test_what_workers_tell_of_the_model_is_known_once_and_remembered(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    for _ in range(2):
        job.do("remark", remarks=["moved", "x" * 600])
    assert job.state.remarks == ["moved", "x" * 500]
    job.do("remark", remarks=[str(number) for number in range(100)])
    assert len(job.state.remarks) == 20
    again = JobState(job.state.plan)
    again.restore(job.state.snapshot())
    assert again.remarks == job.state.remarks


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("evaluates", [True, False])
def test_before_a_model_is_exported_no_gradient_waits_for_others(
    toy_job: Callable[..., Any], saves: bool, evaluates: bool
) -> None:
    plan = Plan(
        workers=2,
        servers=1,
        batch_size=4,
        shard_size=8,
        gradients_wait=True,
        has_output=True,
        saves=saves,
        evaluates=evaluates,
    )
    job = started(toy_job, plan, sizes={"training": 100, **({"evaluation": 10} if evaluates else {})})
    flushed = []
    take = job.state.standstill.cut_taken
    job.state._commands["cut_taken"] = lambda *, cut: (
        flushed.append(job.state.cut.save or job.state.cut.flush),
        take(cut=cut),
    )[1]
    job.run()
    assert job.state.outcome == "succeeded"
    assert flushed == [True]
    assert len(job.state.results) == evaluates
