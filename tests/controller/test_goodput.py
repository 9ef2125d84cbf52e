"""Where the seconds of a job's life go, from the states that its status has had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.controller.reconcile.goodput import accounted
from elasticdl.jobs.training_job.status import (
    ConditionType,
    LostSeconds,
    RoleStatus,
    TrainingJobPhase,
    TrainingJobStatus,
)
from tests.controller.builders import NOW, FakeCluster, status_of, training_job


def in_phase(phase: TrainingJobPhase, *, ready: int = 0, desired: int = 0) -> TrainingJobStatus:
    status = TrainingJobStatus(phase=phase, trainer=RoleStatus(ready=ready, desired=desired, min=1, max=4))
    return status.with_condition(ConditionType.READY, ready > 0, reason="Test", now_seconds=NOW)


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
