"""Jobs that their user or a queue suspends: a checkpoint, then no pods; later the same job with an admitted size."""

from __future__ import annotations

import pytest

from elasticdl.controller.engine import PROGRESS_SECONDS
from elasticdl.controller.reconcile.actions import DeletePod, EmitEvent, StartJob, StartMaster, WriteDesired
from elasticdl.controller.reconcile.job import PAUSE_SECONDS
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.training_job.status import ConditionType, TrainingJobPhase
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

QUEUE = "kueue.x-k8s.io/queue-name"


def queued(document: Document) -> Document:
    document["metadata"]["labels"] = {QUEUE: "team"}
    return document


def sized(document: Document, size: int) -> Document:
    trainer = {**document["spec"]["trainer"], "replicas": size}
    return {**document, "spec": {**document["spec"], "trainer": trainer}}


def test_suspended_job_saves_a_checkpoint_before_its_pods_go() -> None:
    cluster = FakeCluster()
    spec = cluster.run(with_model())
    cluster.show(with_model(suspend=True))
    actions = cluster.actions()
    desired = desired_of(actions)
    assert desired.pause
    assert not of_kind(DeletePod, actions)
    status = status_of(actions)
    assert status.phase is TrainingJobPhase.SUSPENDED
    cluster.show(with_status(with_model(suspend=True), status))
    # The master saves.
    show_record(cluster, spec, desired, report(3))
    assert not of_kind(DeletePod, cluster.actions(now=NOW + 10))
    saved = report(3, observed_generation=desired.generation, is_ready_to_pause=True)
    show_record(cluster, spec, desired, saved)
    assert len(of_kind(DeletePod, cluster.actions(now=NOW + 11))) == 4


def test_answer_to_an_earlier_pause_does_not_count() -> None:
    cluster = FakeCluster()
    spec = cluster.run(with_model())
    cluster.show(with_model(suspend=True))
    earlier = report(3, observed_generation=3, is_ready_to_pause=True)
    show_record(cluster, spec, Desired(generation=5, pause="again"), earlier)
    assert not of_kind(DeletePod, cluster.actions())


def test_master_that_does_not_save_in_time_is_not_waited_for() -> None:
    cluster = FakeCluster()
    spec = cluster.run(with_model())
    cluster.show(with_model(suspend=True))
    actions = cluster.actions()
    cluster.show(with_status(with_model(suspend=True), status_of(actions)))
    show_record(cluster, spec, desired_of(actions), report(3))
    assert not of_kind(DeletePod, cluster.actions(now=NOW + PAUSE_SECONDS - 1))
    later = NOW + PAUSE_SECONDS + PROGRESS_SECONDS
    assert len(of_kind(DeletePod, cluster.actions(now=later))) == 4


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_master_that_does_not_run_is_not_waited_for(phase: str) -> None:
    cluster = FakeCluster()
    spec = cluster.run(with_model())
    cluster.show(with_model(suspend=True), pod(spec, "master-0", phase=phase))
    assert len(of_kind(DeletePod, cluster.actions())) == 4


def test_resumed_job_ends_its_pause_before_its_master_starts() -> None:
    cluster = FakeCluster()
    spec = cluster.started(with_model())["one"]
    paused = Desired(generation=4, nodes={"worker": 3}, pause="suspended")
    show_record(cluster, spec, paused, report(3, observed_generation=4, is_ready_to_pause=True))
    actions = cluster.actions()
    kinds = [type(each) for each in actions]
    assert kinds.index(WriteDesired) < kinds.index(StartMaster)
    assert desired_of(actions).pause == ""


def test_job_of_a_queue_keeps_its_admitted_size_when_it_is_pinned_to_another() -> None:
    cluster = FakeCluster()
    job = queued(training_job(low=1, high=3, suspend=False))
    cluster.run(job)
    cluster.show(sized(job, 3))
    actions = cluster.actions()
    assert not of_kind(WriteDesired, actions)
    valid = status_of(actions).condition(ConditionType.VALID)
    assert valid is not None
    assert valid.reason == "EditNotApplied"
    assert "queue team has admitted 1 trainers, not 3" in valid.message
    assert [each.reason for each in of_kind(EmitEvent, actions)] == ["EditNotApplied"]


def test_job_that_its_queue_preempts_resumes_with_the_size_that_is_admitted_then() -> None:
    cluster = FakeCluster()
    job = queued(training_job(low=1, high=3, suspend=False))
    spec = cluster.run(job)
    preempted = queued(training_job(low=1, high=3, suspend=True))
    cluster.show(preempted)
    actions = cluster.actions()
    for each in of_kind(DeletePod, actions):
        cluster.remove(pod(spec, each.name.removeprefix("one-")))
    status = status_of(actions)
    # While it waits, its user asks for more, and the queue admits that.
    cluster.show(with_status(sized(job, 3), status))
    actions = cluster.actions()
    desired = desired_of(actions)
    assert desired.nodes == {"worker": 3}
    assert not of_kind(StartMaster, actions)
    resumed = status_of(actions)
    show_record(cluster, spec, desired, report(0))
    cluster.show(with_status(sized(job, 3), resumed))
    actions = cluster.actions()
    assert of_kind(StartMaster, actions)
    assert not of_kind(WriteDesired, actions)
    # A later edit waits for the next admission.
    cluster.show(with_status(sized(job, 2), resumed))
    assert not of_kind(WriteDesired, cluster.actions())


def test_job_that_the_planner_has_stopped_resumes_with_its_admitted_size() -> None:
    cluster = FakeCluster()
    job = queued(training_job(low=1, high=3, suspend=False))
    spec = cluster.started(job)["one"]
    cluster.show(record(spec, report=report(1)), sized(job, 3))
    actions = cluster.actions()
    assert of_kind(StartMaster, actions)
    assert not of_kind(WriteDesired, actions)


def test_label_of_a_queue_without_admission_starts_nothing() -> None:
    cluster = FakeCluster()
    for document in (training_job(), training_job(suspend=True)):
        cluster.show(queued(document))
        actions = cluster.actions()
        assert not of_kind(StartJob, actions)
    assert status_of(actions).phase is TrainingJobPhase.SUSPENDED
