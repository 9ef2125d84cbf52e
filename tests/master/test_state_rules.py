"""The rules of a job one by one: epochs, callbacks, stops, failures, bad samples, lost models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticdl.master.commands.checkpoints import PassBarrier
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.job import AddRemarks, FinishTask, StopJob
from elasticdl.master.commands.nodes import PartialPush, PushCredit, ReportFailure
from elasticdl.master.commands.shards import (
    AnnounceDataset,
    LeaseShards,
    ReportProgress,
    TruncateLease,
    UnreadableSamples,
)
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.ledger import Ledger, LedgerError
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason

PLAN = JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, epochs=3)


def started(toy_job: Callable[..., Any], plan: JobSettings = PLAN, **more: Any) -> Any:
    job = toy_job(plan, **more)
    job.start_nodes()
    return job


def lease_one(job: Any, worker: str, request_id: int) -> Any:
    return job.do(LeaseShards(dataset="training", worker=worker, count=1, request_id=request_id))[0]


def pushed(lease: Any, position: int, batches: int) -> PushCredit:
    """The last push of a worker that has ended, as all servers have it."""
    return PushCredit(lease_id=lease.lease_id, position=position, batches=batches)


def progress(*leases: tuple[int, int, int, bool]) -> dict[str, Any]:
    return {"progress": list(leases), "bad": [], "loss_sum": 0.0, "loss_batches": 0, "stop_training": False}


def fail(job: Any, worker: str, lease: Any, traceback: str = "") -> None:
    job.do(
        ReportFailure(
            node=worker, kind="program", message="bad", traceback=traceback, lease_id=lease.lease_id
        )
    )


def test_early_stopping_ends_at_the_end_of_the_epoch(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    while not job.state.task:
        assert any(job.work(worker) for worker in list(job.workers.values())) or job.master_step()
    job.do(FinishTask(task=job.state.task, result="stop", error=""))
    job.run()
    assert job.state.outcome == "succeeded"
    audit = audit_ledger(job.state.ledger)
    assert audit.exact
    assert [(row.epoch, row.done) for row in audit.rows] == [(0, 100)]


def test_stop_saves_first_and_is_no_success(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    for _ in range(6):
        for worker in list(job.workers.values()):
            job.work(worker)
    job.do(StopJob(reason="Ctrl-C"))
    assert not job.state.outcome
    job.run()
    assert job.state.outcome == "stopped"
    assert job.state.saved is not None
    assert job.state.saved.step == job.state.ledger.steps > 0


def test_stop_before_the_first_batch_needs_nothing_saved(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    job.do(StopJob(reason="Ctrl-C"))
    assert job.state.outcome == "stopped"


def test_two_sizes_of_one_data_set_are_refused(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    with pytest.raises(LedgerError, match="100"):
        job.do(AnnounceDataset(dataset="training", size=99))


def test_a_shard_that_fails_too_often_fails_the_job_with_its_traceback(toy_job: Callable[..., Any]) -> None:
    job = started(
        toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8, max_shard_failures=1)
    )
    for number in range(2):
        worker = f"worker-{number}"
        fail(job, worker, lease_one(job, worker, 1), f"trace {number}")
        assert not job.state.outcome
        job.end(worker, EndReason.ERROR, 1)
        job.start_nodes()
    assert job.state.outcome == "failed"
    assert job.state.message.startswith("The program has failed 2 times on samples")
    assert job.state.message.endswith("bad")
    assert job.state.traceback == "trace 1"
    assert not job.state.ledger.check()


def test_failed_worker_that_was_stopped_counts_as_failed(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8, max_node_failures=1))
    for number in range(2):
        assert not job.state.outcome
        worker = f"worker-{number}"
        job.do(ReportFailure(node=worker, kind="memory", message="bad", traceback="trace", lease_id=0))
        job.end(worker, EndReason.STOPPED, None)
        job.start_nodes()
    assert job.state.outcome == "failed"
    assert "has now failed 2 times" in job.state.message


def test_failed_worker_gets_no_lease_and_no_split(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=2, servers=1, batch_size=4, shard_size=200))
    lease = lease_one(job, "worker-0", 1)
    assert job.state.work.may_lease("training", "worker-0", 1)
    assert job.state.work.propose_split("training", "worker-1")
    job.state.work.withdraw_proposals()
    fail(job, "worker-0", lease)
    assert not job.state.work.may_lease("training", "worker-0", 1)
    assert not job.state.work.propose_split("training", "worker-1")


def test_more_bad_samples_than_allowed_fail_the_job(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8, max_bad_records=2))
    bad = UnreadableSamples(
        dataset="training", start=0, end=3, where="part-0 at byte 20", reason="bad checksum"
    )
    report: dict[str, Any] = {"progress": [], "loss_sum": 0.0, "loss_batches": 0, "stop_training": False}
    job.do(ReportProgress(worker="worker-0", report_id=1, bad=[replace(bad, end=2)], **report))
    assert not job.state.outcome
    job.do(ReportProgress(worker="worker-0", report_id=2, bad=[bad], **report))
    assert job.state.outcome == "failed"
    assert "part-0 at byte 20" in job.state.message


@pytest.mark.parametrize(("dataset", "end"), [("unknown", 1), ("training", 10**6), ("training", 0)])
def test_bad_samples_that_do_not_exist_leave_the_ledger_unchanged(
    toy_job: Callable[..., Any], dataset: str, end: int
) -> None:
    job = started(toy_job)
    known = UnreadableSamples(dataset="training", start=0, end=1, where="part-0", reason="bad checksum")
    bad = [known, replace(known, dataset=dataset, end=end)]
    with pytest.raises(LedgerError):
        job.do(ReportProgress(worker="worker-0", report_id=1, **{**progress(), "bad": bad}))
    assert job.state.ledger.skipped("training") == 0


def test_a_lost_server_goes_back_to_the_checkpoint_and_counts_it(toy_job: Callable[..., Any]) -> None:
    job = started(
        toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8, epochs=1, checkpoint_steps=5)
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
    assert audit_ledger(job.state.ledger).exact


def test_the_last_push_of_a_dead_worker_counts(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8))
    lease = job.do(LeaseShards(dataset="training", worker="worker-0", count=1, request_id=1))[0]
    credit = pushed(lease, lease.start + 4, 1)
    job.end("worker-0", credit=credit)
    assert job.state.ledger.samples_done("training") == 4
    assert job.state.ledger.steps == 1


def test_the_earlier_shards_of_a_dead_worker_count(toy_job: Callable[..., Any]) -> None:
    """They are gone through in the order of their numbers, and the last push is of the second."""
    job = started(toy_job, JobSettings(workers=2, servers=1, batch_size=4, shard_size=10))
    first, second, third = (lease_one(job, "worker-0", number) for number in (1, 2, 3))
    others = lease_one(job, "worker-1", 1)
    job.do(
        ReportProgress(
            worker="worker-0", report_id=1, **progress((first.lease_id, first.start + 4, 1, False))
        )
    )
    job.end("worker-0", credit=pushed(second, second.start + 4, 1))
    assert job.state.ledger.samples_done("training") == 14
    assert job.state.ledger.steps == 4
    assert [lease.lease_id for lease in job.state.ledger.held("training")] == [others.lease_id]
    assert job.state.ledger.to_do("training", 2) == [(second.start + 4, second.end), (third.start, third.end)]
    assert not job.state.ledger.check()


def test_truncated_part_of_earlier_shard_is_not_credited(toy_job: Callable[..., Any]) -> None:
    job = started(
        toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=12), sizes={"training": 96}
    )
    first, second = (lease_one(job, "worker-0", number) for number in (1, 2))
    job.do(TruncateLease(worker="worker-0", lease_id=first.lease_id, end=first.start + 8))
    job.end("worker-0", credit=pushed(second, second.start + 4, 1))
    assert job.state.ledger.samples_done("training") == 12
    assert (first.start + 8, first.end) in job.state.ledger.to_do("training", 2)


def test_in_a_shard_without_order_a_push_counts_for_those_before_it(toy_job: Callable[..., Any]) -> None:
    job = started(
        toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=8), sizes={"training": 96}
    )
    _, second = (lease_one(job, "worker-0", number) for number in (1, 2))
    job.end("worker-0", credit=pushed(second, second.start, 1))
    assert job.state.ledger.samples_done("training") == 8
    assert job.state.ledger.steps == 2
    assert job.state.ledger.to_do("training", 1) == [(second.start, second.end)]
    assert audit_ledger(job.state.ledger).twice == 8


def test_partial_batch_is_leased_by_itself_with_buckets_that_have_it(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=2, servers=3, batch_size=4, shard_size=12))
    first, second = (lease_one(job, "worker-0", number) for number in (1, 2))
    partial = PartialPush(lease_id=second.lease_id, position=second.start + 4, batches=1, buckets="0f")
    job.end("worker-0", partial=partial)
    assert job.state.ledger.samples_done("training") == 12
    leases = [lease_one(job, "worker-1", number) for number in (1, 2)]
    assert [(lease.start, lease.end, lease.applied) for lease in leases] == [
        (second.start + 4, second.end, ""),
        (second.start, second.start + 4, "0f"),
    ]
    assert not job.state.ledger.check()
    assert first.lease_id not in {lease.lease_id for lease in job.state.ledger.held("training")}


def test_partial_batch_is_done_once_two_dead_workers_have_reached_all_buckets(
    toy_job: Callable[..., Any],
) -> None:
    job = started(toy_job, JobSettings(workers=2, servers=2, batch_size=4, shard_size=4))
    lease = lease_one(job, "worker-0", 1)
    job.end(
        "worker-0",
        partial=PartialPush(lease_id=lease.lease_id, position=lease.end, batches=1, buckets="0f"),
    )
    again = lease_one(job, "worker-1", 1)
    assert (again.start, again.end, again.applied) == (lease.start, lease.end, "0f")
    job.end(
        "worker-1",
        partial=PartialPush(lease_id=again.lease_id, position=again.end, batches=1, buckets="f0"),
    )
    assert job.state.ledger.samples_done("training") == 4
    assert job.state.ledger.steps == 1
    assert not job.state.ledger.held("training")


def test_partial_batch_keeps_its_buckets_in_snapshots(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=2, servers=2, batch_size=4, shard_size=4))
    lease = lease_one(job, "worker-0", 1)
    job.end(
        "worker-0",
        partial=PartialPush(lease_id=lease.lease_id, position=lease.end, batches=1, buckets="0f"),
    )
    queued = Ledger.restore(job.state.ledger.snapshot())
    (given,) = queued.lease("training", "worker-1", 1, 1)
    assert given.applied == "0f"
    held = Ledger.restore(queued.snapshot())
    assert [lease.applied for lease in held.held("training")] == ["0f"]


def test_partial_batch_without_order_may_count_twice(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=1, servers=2, batch_size=4, shard_size=8))
    lease = lease_one(job, "worker-0", 1)
    job.end(
        "worker-0",
        partial=PartialPush(lease_id=lease.lease_id, position=lease.start, batches=1, buckets="0f"),
    )
    assert job.state.ledger.samples_done("training") == 0
    assert audit_ledger(job.state.ledger).twice == lease.end - lease.start


def test_evaluated_shards_are_not_credited_for_pushes(toy_job: Callable[..., Any]) -> None:
    plan = JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, evaluates=True, evaluation_steps=1)
    job = started(toy_job, plan, sizes={"training": 100, "evaluation": 20})
    while job.state.evaluation is None:
        assert any(job.work(w) for w in list(job.workers.values())) or job.master_step()
    job._lease(job.workers["worker-0"], "evaluation")
    job._lease(job.workers["worker-0"], "training")
    last = job.state.ledger.held_by("worker-0")[-1]
    name = job.state.evaluation.dataset
    done = job.state.ledger.samples_done(name)
    job.end("worker-0", credit=pushed(last, last.start + 4, 1))
    assert job.state.ledger.samples_done(name) == done
    assert job.state.ledger.leasable(name)


def test_batches_pushed_by_failed_worker_count(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=2, servers=1, batch_size=4, shard_size=16))
    lease = lease_one(job, "worker-0", 1)
    fail(job, "worker-0", lease)
    # Its last push may still be on the way: no other worker gets any of it, and a barrier waits.
    assert job.state.ledger.held_by("worker-0")
    assert lease_one(job, "worker-1", 1).start != lease.start
    job.end("worker-0", EndReason.ERROR, 1, credit=pushed(lease, lease.start + 12, 3))
    assert job.state.ledger.samples_done("training") == 12
    assert job.state.ledger.steps == 3
    again = lease_one(job, "worker-1", 2)
    assert (again.start, again.end, again.failures) == (lease.start + 12, lease.end, 1)


def test_where_the_model_is_not_on_servers_a_failed_worker_loses_its_shards_at_once(
    toy_job: Callable[..., Any],
) -> None:
    job = started(toy_job, JobSettings(kind="predict", workers=2, batch_size=4), sizes={"prediction": 100})
    lease = job.do(LeaseShards(dataset="prediction", worker="worker-0", count=1, request_id=1))[0]
    fail(job, "worker-0", lease)
    assert not job.state.ledger.held_by("worker-0")
    assert not job.state.failed


def test_a_failure_is_remembered_until_the_worker_has_ended(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job, JobSettings(workers=1, servers=1, batch_size=4, shard_size=16))
    lease = lease_one(job, "worker-0", 1)
    fail(job, "worker-0", lease)
    again = JobState(job.state.plan)
    again.restore(json.loads(json.dumps(job.state.snapshot())))
    assert again.snapshot() == job.state.snapshot()
    job.state = again
    # Calls are repeated where the answer was lost.
    fail(job, "worker-0", lease)
    job.end("worker-0", EndReason.ERROR, 1)
    assert not job.state.failed
    fail(job, "worker-0", lease)
    assert not job.state.failed
    job.start_nodes()
    assert lease_one(job, "worker-1", 1).failures == 1


def test_the_whole_state_survives_a_snapshot(toy_job: Callable[..., Any]) -> None:
    plan = JobSettings(
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


def test_remarks_are_deduplicated_bounded_and_restored(toy_job: Callable[..., Any]) -> None:
    job = started(toy_job)
    for _ in range(2):
        job.do(AddRemarks(remarks=["moved", "x" * 600]))
    assert job.state.remarks == ["moved", "x" * 500]
    job.do(AddRemarks(remarks=[str(number) for number in range(100)]))
    assert len(job.state.remarks) == 20
    again = JobState(job.state.plan)
    again.restore(job.state.snapshot())
    assert again.remarks == job.state.remarks


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("evaluates", [True, False])
def test_before_a_model_is_exported_no_gradient_waits_for_others(
    toy_job: Callable[..., Any], saves: bool, evaluates: bool
) -> None:
    plan = JobSettings(
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
    do = job.do

    def do_and_look(command: Command[Any]) -> Any:
        if isinstance(command, PassBarrier):
            flushed.append(job.state.barrier.save or job.state.barrier.flush)
        return do(command)

    job.do = do_and_look
    job.run()
    assert job.state.outcome == "succeeded"
    assert flushed == [True]
    assert len(job.state.results) == evaluates
