"""Jobs that stop for something of higher priority: a checkpoint within a few seconds, then no pods."""

from __future__ import annotations

import math
from typing import Any

import pytest

from elasticdl.controller.engine import Engine
from elasticdl.controller.reconcile.actions import DeletePod, EmitEvent, StartJob, WriteDesired
from elasticdl.controller.reconcile.job import PREEMPTION_PAUSE_SECONDS
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.status import TrainingJobPhase
from tests.controller.builders import (
    NOW,
    Document,
    FakeCluster,
    desired_of,
    of_kind,
    pod,
    record,
    report,
    show_record,
    status_of,
    training_job,
    with_model,
    with_status,
)

# Has room if all workers of the job go, which is below its minimum.
URGENT: Document = {
    "kind": "Pod",
    "metadata": {"name": "urgent", "namespace": "other", "uid": "urgent", "resourceVersion": "1"},
    "spec": {"priority": 1000, "containers": [{"name": "a", "resources": {"requests": {"cpu": "6"}}}]},
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
}


def running(engine: Engine | None = None) -> tuple[FakeCluster, JobSpec]:
    """A job of a master, a parameter server and three workers on a machine of 8 CPUs."""
    cluster = FakeCluster(engine=engine, cpu="8")
    spec = cluster.run(with_model())
    cluster.show(pod(spec, "ps-0"))
    return cluster, spec


def paused(engine: Engine | None = None) -> tuple[FakeCluster, JobSpec, Any]:
    """A job that an urgent pod preempts, after its pause was written."""
    cluster, spec = running(engine)
    cluster.show(URGENT)
    actions = cluster.actions()
    desired = desired_of(actions)
    assert desired.pause
    assert not of_kind(DeletePod, actions)
    assert status_of(actions).phase is TrainingJobPhase.PENDING
    assert [each.reason for each in of_kind(EmitEvent, actions)][:1] == ["Preempt"]
    cluster.show(with_status(with_model(), status_of(actions)))
    show_record(cluster, spec, desired, report(3))
    return cluster, spec, desired


def test_preempted_job_saves_a_checkpoint_before_its_pods_go() -> None:
    cluster, spec, desired = paused()
    assert not of_kind(DeletePod, cluster.actions(now=NOW + 1))
    saved = report(3, observed_generation=desired.generation, is_ready_to_pause=True)
    show_record(cluster, spec, desired, saved)
    assert len(of_kind(DeletePod, cluster.actions(now=NOW + 2))) == 5


def test_master_that_does_not_save_is_waited_for_only_shortly() -> None:
    cluster, _, _ = paused()
    assert not of_kind(DeletePod, cluster.actions(now=NOW + PREEMPTION_PAUSE_SECONDS - 1))
    assert len(of_kind(DeletePod, cluster.actions(now=NOW + PREEMPTION_PAUSE_SECONDS))) == 5


def test_end_of_the_pause_is_on_time_where_jobs_are_looked_at_seldom() -> None:
    """The more jobs there are, the less often a controller writes the progress of each."""
    cluster, _, _ = paused(Engine(progress_seconds=60.0))
    assert not of_kind(DeletePod, cluster.actions(now=NOW + 1))
    assert cluster.engine.seconds_to_pause_end(NOW + 1) == PREEMPTION_PAUSE_SECONDS - 1
    assert len(of_kind(DeletePod, cluster.actions(now=NOW + PREEMPTION_PAUSE_SECONDS))) == 5


def test_pause_that_is_over_and_jobs_without_one_need_no_early_step() -> None:
    cluster, _, _ = paused()
    cluster.step(NOW + 1)
    assert cluster.engine.seconds_to_pause_end(NOW + PREEMPTION_PAUSE_SECONDS) == math.inf
    assert running()[0].engine.seconds_to_pause_end(NOW) == math.inf


def test_job_resumes_if_the_urgent_pod_goes_away_before_the_checkpoint() -> None:
    cluster, _, desired = paused()
    cluster.remove(URGENT)
    actions = cluster.actions(now=NOW + 1)
    assert not of_kind(DeletePod, actions)
    assert desired_of(actions).pause == ""
    assert desired_of(actions).generation == desired.generation + 1


def test_job_of_a_user_program_is_stopped_at_once() -> None:
    cluster = FakeCluster(cpu="7")
    cluster.run(training_job())
    cluster.show(URGENT)
    actions = cluster.actions()
    assert len(of_kind(DeletePod, actions)) == 4
    assert not of_kind(WriteDesired, actions)


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_preempted_job_without_a_running_master_is_stopped_at_once(phase: str) -> None:
    cluster, spec = running()
    cluster.show(pod(spec, "master-0", phase=phase), URGENT)
    assert of_kind(DeletePod, cluster.actions())


def test_answer_to_an_earlier_pause_does_not_count() -> None:
    cluster, spec, desired = paused()
    earlier = report(3, observed_generation=desired.generation - 1, is_ready_to_pause=True)
    show_record(cluster, spec, Desired(generation=desired.generation, pause="again"), earlier)
    assert not of_kind(DeletePod, cluster.actions(now=NOW + 1))


def test_job_of_higher_priority_starts_while_the_other_saves() -> None:
    cluster, spec = running()
    cluster.show(
        {
            "kind": "PriorityClass",
            "metadata": {"name": "high", "uid": "high", "resourceVersion": "1"},
            "value": 9,
        },
    )
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    urgent = training_job("urgent", low=3, high=3, priorityClassName="high")
    urgent["spec"]["trainer"]["resources"] = resources
    cluster.show(urgent)
    found = cluster.step().actions
    [start] = of_kind(StartJob, found["elasticdl.org/default/urgent"])
    desired = desired_of(found["elasticdl.org/default/one"])
    cluster.show(with_status(with_model(), status_of(found["elasticdl.org/default/one"])))
    show_record(cluster, spec, desired, report(3))
    # Its pods wait for the room, and ask for nothing else.
    pods = [
        pod(start.spec, name, phase="Pending") for name in ("master-0", "worker-0", "worker-1", "worker-2")
    ]
    for each in pods:
        each["spec"].pop("nodeName")
        each["spec"]["priority"] = 9
    cluster.show(record(start.spec), *pods)
    actions = cluster.actions(now=NOW + 1)
    assert not of_kind(WriteDesired, actions)
    assert not of_kind(DeletePod, actions)
    assert len(of_kind(DeletePod, cluster.actions(now=NOW + PREEMPTION_PAUSE_SECONDS))) == 5
