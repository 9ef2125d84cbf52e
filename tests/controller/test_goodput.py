"""Where the seconds of a job's life go, from the states that its status has had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.controller.reconcile import goodput as account
from elasticdl.jobs.status import JobStatus
from elasticdl.jobs.training_job.status import (
    ConditionType,
    GoodputStatus,
    LostSeconds,
    RoleStatus,
    TrainingJobPhase,
    TrainingJobStatus,
)
from tests.controller.builders import NOW, FakeCluster, record, report, status_of, training_job


def in_phase(phase: TrainingJobPhase, *, ready: int = 0, desired: int = 0) -> TrainingJobStatus:
    status = TrainingJobStatus(phase=phase, trainer=RoleStatus(ready=ready, desired=desired, min=1, max=4))
    return status.with_condition(ConditionType.READY, ready > 0, reason="Test", now_seconds=NOW)


def accounted(
    before: TrainingJobStatus, reported: JobStatus | None = None, *, created_seconds: float, now: float
) -> GoodputStatus:
    return account.accounted(before, reported or JobStatus(), created_seconds=created_seconds, now=now)


@pytest.mark.parametrize(
    ("phase", "lost"),
    [
        (TrainingJobPhase.PENDING, LostSeconds(waiting_for_capacity=10.0)),
        (TrainingJobPhase.STARTING, LostSeconds(starting=10.0)),
        (TrainingJobPhase.RUNNING, LostSeconds(starting=10.0)),
    ],
)
def test_time_without_the_minimum_is_lost(phase: TrainingJobPhase, lost: LostSeconds) -> None:
    goodput = accounted(in_phase(phase), created_seconds=NOW, now=NOW + 10)
    assert goodput.lost_seconds == lost
    assert (goodput.training_seconds, goodput.ratio) == (0.0, None)


def test_job_with_some_of_its_trainers_loses_the_share_of_the_others() -> None:
    goodput = accounted(
        in_phase(TrainingJobPhase.RUNNING, ready=3, desired=4), created_seconds=NOW, now=NOW + 8
    )
    assert (goodput.training_seconds, goodput.lost_seconds.resizing) == (6.0, 2.0)
    assert goodput.ratio == 0.75


def test_account_continues_where_it_was() -> None:
    waiting = in_phase(TrainingJobPhase.PENDING)
    first = accounted(waiting, created_seconds=NOW, now=NOW + 30)
    running = replace(in_phase(TrainingJobPhase.RUNNING, ready=4, desired=4), goodput=first)
    second = accounted(running, created_seconds=NOW, now=NOW + 120)
    assert (second.lost_seconds.waiting_for_capacity, second.training_seconds) == (30.0, 90.0)
    assert second.ratio == 0.75


def test_pause_by_the_user_is_not_lost() -> None:
    goodput = accounted(in_phase(TrainingJobPhase.SUSPENDED), created_seconds=NOW, now=NOW + 10)
    assert (goodput.suspended_seconds, goodput.lost_seconds.total) == (10.0, 0.0)


def test_samples_that_are_trained_again_cost_their_share_of_the_time_at_work() -> None:
    running = in_phase(TrainingJobPhase.RUNNING, ready=4, desired=4)
    rolled_back = JobStatus(samples_done=600, samples_again=200)
    goodput = accounted(running, rolled_back, created_seconds=NOW, now=NOW + 80)
    assert (goodput.training_seconds, goodput.lost_seconds.retraining) == (60.0, 20.0)
    assert goodput.ratio == 0.75


def test_waiting_for_stragglers_is_taken_from_the_time_at_work() -> None:
    running = in_phase(TrainingJobPhase.RUNNING, ready=4, desired=4)
    slow = JobStatus(samples_done=300, samples_again=100, straggler_seconds=20.0)
    goodput = accounted(running, slow, created_seconds=NOW, now=NOW + 100)
    assert goodput.lost_seconds == LostSeconds(stragglers=20.0, retraining=20.0)
    assert goodput.training_seconds == 60.0


def test_lost_report_of_a_master_takes_nothing_back() -> None:
    running = in_phase(TrainingJobPhase.RUNNING, ready=4, desired=4)
    slow = JobStatus(samples_done=300, samples_again=100, straggler_seconds=20.0)
    first = accounted(running, slow, created_seconds=NOW, now=NOW + 100)
    again = accounted(replace(running, goodput=first), JobStatus(), created_seconds=NOW, now=NOW + 110)
    assert again.lost_seconds == first.lost_seconds
    assert again.training_seconds == 70.0


def test_parts_never_exceed_the_time_at_work() -> None:
    running = in_phase(TrainingJobPhase.RUNNING, ready=1, desired=1)
    absurd = JobStatus(samples_done=1, samples_again=99, straggler_seconds=1e6)
    goodput = accounted(running, absurd, created_seconds=NOW, now=NOW + 10)
    assert goodput.training_seconds + goodput.lost_seconds.total == 10.0
    assert goodput.training_seconds == 0.0


def test_status_of_a_running_job_has_what_its_master_reports() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job(high=3))
    status = status_of(cluster.actions())
    slow = report(3, samples_done=900, samples_again=100, samples_desired=9000, straggler_seconds=5.0)
    cluster.show(training_job(high=3, status=status), record(spec, report=slow))
    lost = status_of(cluster.actions(now=NOW + 105)).goodput.lost_seconds
    assert (lost.stragglers, lost.retraining) == (5.0, 10.0)


def test_clock_that_jumps_back_takes_nothing_away() -> None:
    first = accounted(in_phase(TrainingJobPhase.PENDING), created_seconds=NOW, now=NOW + 30)
    again = replace(in_phase(TrainingJobPhase.PENDING), goodput=first)
    assert accounted(again, created_seconds=NOW, now=NOW + 5) == first


def test_passing_time_alone_is_not_written() -> None:
    cluster = FakeCluster(cpu="500m")
    cluster.show(training_job())
    status = status_of(cluster.actions())
    cluster.show(training_job(status=status))
    assert cluster.actions(now=NOW + 100) == ()
    cluster.show(training_job(status=status, suspend=True))
    written = status_of(cluster.actions(now=NOW + 100)).goodput
    assert written.lost_seconds.waiting_for_capacity == 100.0
