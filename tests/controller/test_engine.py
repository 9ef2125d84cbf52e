"""The reconcile loop, stepped one event at a time: objects in, actions out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticdl.controller.reconcile.actions import (
    DeletePod,
    DeleteTrainingJob,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.jobs.status import RunState
from elasticdl.jobs.training_job.status import ConditionType, TrainingJobPhase, TrainingJobStatus, format_time
from tests.controller.builders import (
    NOW,
    FakeCluster,
    desired_of,
    node,
    of_kind,
    pod,
    record,
    report,
    status_of,
    training_job,
)


def test_new_job_starts_with_the_size_that_fits() -> None:
    cluster = FakeCluster(cpu="3")
    spec = cluster.started(training_job(low=1, high=5))["one"]
    # 3 CPUs, of which the master takes half of one.
    assert spec.nodes.num_workers == 2
    assert (spec.nodes.min_workers, spec.nodes.max_workers) == (1, 5)
    assert (spec.job_name, spec.cluster.namespace) == ("one", "default")


def test_start_writes_status_and_event_after_the_record() -> None:
    cluster = FakeCluster()
    cluster.show(training_job())
    actions = cluster.actions()
    assert [type(each) for each in actions] == [StartJob, WriteStatus, EmitEvent]
    status = status_of(actions)
    assert status.phase is TrainingJobPhase.STARTING
    assert [each.kind for each in status.decisions] == ["Admit"]
    assert actions[-1].reason == "Admit"  # type: ignore[union-attr]


def test_running_job_at_its_maximum_needs_no_change() -> None:
    cluster = FakeCluster()
    cluster.run(training_job(high=3))
    actions = cluster.actions()
    assert not of_kind(WriteDesired, actions)
    status = status_of(actions)
    assert status.phase is TrainingJobPhase.RUNNING
    assert str(status.trainer) == "3/3 (1–3)"
    ready = status.condition(ConditionType.READY)
    assert ready is not None
    assert ready.is_true


def test_step_after_the_status_is_written_does_nothing() -> None:
    cluster = FakeCluster()
    cluster.run(training_job(high=3))
    status = status_of(cluster.actions())
    cluster.show(training_job(high=3, status=status))
    assert cluster.actions() == ()


def test_job_grows_when_a_machine_comes() -> None:
    cluster = FakeCluster(cpu="2")
    cluster.run(training_job(high=3))
    cluster.show(node("m1"))
    actions = cluster.actions()
    desired = desired_of(actions)
    assert desired.nodes == {"worker": 3}
    assert desired.generation == 1
    assert "Grow" in [each.reason for each in of_kind(EmitEvent, actions)]


def test_job_shrinks_for_another_and_names_its_victims() -> None:
    cluster = FakeCluster(cpu="4")
    cluster.run(training_job("one", high=3))
    cluster.show(training_job("two", low=1, high=1))
    desired = desired_of(cluster.actions("one"))
    assert desired.nodes["worker"] < 3
    assert set(desired.victims) <= {"worker-0", "worker-1", "worker-2"}
    assert desired.victims


def test_desired_size_is_not_written_twice() -> None:
    cluster = FakeCluster(cpu="2")
    job = training_job(high=3)
    spec = cluster.run(job)
    cluster.show(node("m1"))
    desired = desired_of(cluster.actions())
    cluster.show(record(spec, report=report(1), generation=desired.generation, nodes=desired.nodes))
    assert not of_kind(WriteDesired, cluster.actions())


def test_worker_that_has_finished_changes_no_desired_size() -> None:
    # No room for a third worker.
    cluster = FakeCluster(cpu="3")
    spec = cluster.run(training_job(high=3))
    cluster.show(node("m0", cpu="1500m"), pod(spec, "worker-1", phase="Succeeded"))
    assert not of_kind(WriteDesired, cluster.actions())


def test_users_stop_is_never_replaced_by_a_size() -> None:
    cluster = FakeCluster(cpu="2")
    spec = cluster.run(training_job(high=3))
    cluster.show(node("m1"), record(spec, report=report(1), generation=4, stop="enough"))
    assert not of_kind(WriteDesired, cluster.actions())


def test_pinned_size_is_written() -> None:
    cluster = FakeCluster()
    job = training_job(high=3)
    cluster.run(job)
    pinned = training_job(high=3)
    pinned["spec"]["trainer"]["replicas"] = 2
    pinned["metadata"]["generation"] = 2
    cluster.show(pinned)
    assert desired_of(cluster.actions()).nodes == {"worker": 2}


def test_missing_master_is_created_again_with_its_record() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job())
    cluster.remove(pod(spec, "master-0"))
    actions = cluster.actions()
    [start] = of_kind(StartMaster, actions)
    assert start.record["metadata"]["uid"] == "record-one"
    assert start.spec.job_name == "one"
    assert status_of(actions).restarts == 1
    assert [each.reason for each in of_kind(EmitEvent, actions)] == ["MasterRestarted"]


def test_master_on_a_lost_machine_is_deleted_by_force() -> None:
    cluster = FakeCluster(machines=2)
    cluster.run(training_job())
    cluster.show(node("m0", ready=False))
    deleted = of_kind(DeletePod, cluster.actions())
    assert [(each.name, each.is_forced) for each in deleted] == [("one-master-0", True)]


def test_ended_master_of_an_unfinished_job_is_deleted() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job())
    cluster.show(pod(spec, "master-0", phase="Failed"))
    [deleted] = of_kind(DeletePod, cluster.actions())
    assert not deleted.is_forced


def test_suspended_job_keeps_its_record_and_loses_its_pods() -> None:
    cluster = FakeCluster()
    cluster.run(training_job())
    edited = training_job(suspend=True)
    edited["metadata"]["generation"] = 2
    cluster.show(edited)
    actions = cluster.actions()
    names = [each.name for each in of_kind(DeletePod, actions)]
    assert names == ["one-master-0", "one-worker-0", "one-worker-1", "one-worker-2"]
    assert status_of(actions).phase is TrainingJobPhase.SUSPENDED


def test_job_of_a_queue_waits_until_it_is_admitted() -> None:
    cluster = FakeCluster()
    job = training_job()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    cluster.show(job)
    actions = cluster.actions()
    assert not of_kind(StartJob, actions)
    assert status_of(actions).phase is TrainingJobPhase.SUSPENDED


def test_misspelled_field_is_reported_with_the_nearest_name() -> None:
    cluster = FakeCluster()
    cluster.show(training_job(fault_tolernt=True))
    actions = cluster.actions()
    status = status_of(actions)
    assert status.phase is TrainingJobPhase.INVALID
    assert "fault_tolerant" in status.message
    assert [each.is_warning for each in of_kind(EmitEvent, actions)] == [True]


def test_minimum_larger_than_the_cluster_is_reported_and_blocks_no_other() -> None:
    cluster = FakeCluster(cpu="3")
    specs = cluster.started(training_job("huge", low=50, high=50), training_job("small", high=1))
    assert set(specs) == {"small"}
    status = status_of(cluster.actions("huge"))
    admitted = status.condition(ConditionType.ADMITTED)
    assert admitted is not None
    assert (admitted.status, admitted.reason) == ("False", "DoesNotFit")
    assert status.phase is TrainingJobPhase.PENDING


def test_foreign_job_of_the_same_name_is_left_alone() -> None:
    cluster = FakeCluster()
    spec = cluster.started(training_job())["one"]
    cluster.show(record(spec, owner="another"))
    actions = cluster.actions()
    assert [type(each) for each in actions] == [WriteStatus, EmitEvent]
    admitted = status_of(actions).condition(ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.reason == "NameInUse"


def test_equal_names_in_two_namespaces_do_not_interfere() -> None:
    cluster = FakeCluster(machines=2)
    cluster.show(training_job(namespace="default"), training_job(namespace="other"))
    started = [
        each.job.namespace
        for actions in cluster.step().actions.values()
        for each in actions
        if isinstance(each, StartJob)
    ]
    assert sorted(started) == ["default", "other"]


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (RunState.SUCCEEDED, TrainingJobPhase.SUCCEEDED),
        (RunState.FAILED, TrainingJobPhase.FAILED),
        (RunState.STOPPED, TrainingJobPhase.STOPPED),
    ],
)
def test_end_of_the_job_is_its_last_status(state: RunState, phase: TrainingJobPhase) -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job())
    cluster.show(record(spec, report=report(0, state=state, message="that was it")))
    actions = cluster.actions()
    status = status_of(actions)
    assert (status.phase, status.message) == (phase, "that was it")
    assert status.completion_time == format_time(NOW)
    # Whatever is deleted afterwards, nothing starts again.
    cluster.show(training_job(status=status))
    cluster.remove(record(spec))
    assert cluster.actions() == ()


def test_finished_job_is_deleted_after_its_time_to_live() -> None:
    ended = TrainingJobStatus(phase=TrainingJobPhase.SUCCEEDED, completion_time=format_time(NOW))
    cluster = FakeCluster()
    cluster.show(training_job(ttlSecondsAfterFinished=60, status=ended))
    assert cluster.actions(now=NOW + 59) == ()
    assert [type(each) for each in cluster.actions(now=NOW + 60)] == [DeleteTrainingJob]


def test_progress_alone_is_written_at_intervals() -> None:
    cluster = FakeCluster()
    job = training_job()
    spec = cluster.run(job)
    status = status_of(cluster.actions())
    cluster.show(training_job(status=status))
    cluster.show(record(spec, report=report(3, samples_done=50, samples_desired=100)))
    assert cluster.actions(now=NOW + 1) == ()
    assert status_of(cluster.actions(now=NOW + 6)).progress.samples_done == 50


def test_missing_image_stalls_the_job() -> None:
    cluster = FakeCluster()
    spec = cluster.started(training_job())["one"]
    waiting = pod(spec, "master-0", phase="Pending")
    words = {"waiting": {"reason": "ErrImagePull", "message": "there is no such image"}}
    waiting["status"]["containerStatuses"] = [{"name": "master", "state": words}]
    cluster.show(record(spec), waiting)
    stalled = status_of(cluster.actions()).condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "ImageMissing")
    assert "there is no such image" in stalled.message


def test_alternating_words_of_one_trouble_are_one_event() -> None:
    cluster = FakeCluster()
    spec = cluster.started(training_job())["one"]
    waiting = pod(spec, "master-0", phase="Pending")
    reasons = []
    status = None
    for word in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        state = {"waiting": {"reason": word, "message": word}}
        waiting["status"]["containerStatuses"] = [{"name": "master", "state": state}]
        cluster.show(record(spec), waiting, training_job(status=status))
        actions = cluster.actions()
        reasons += [each.reason for each in of_kind(EmitEvent, actions)]
        status = status_of(actions)
    assert reasons == ["ImageMissing"]


def test_deleted_job_is_left_to_the_garbage_collector() -> None:
    cluster = FakeCluster()
    job = training_job()
    cluster.run(job)
    job["metadata"]["deletionTimestamp"] = "2023-11-14T22:14:20Z"
    cluster.show(job)
    assert cluster.actions() == ()


def test_busy_job_is_planned_for_and_left_alone() -> None:
    cluster = FakeCluster()
    cluster.show(training_job())
    step = cluster.engine.step(NOW, busy={"elasticdl.org/default/one"})
    assert step.actions == {}
    assert step.decisions["default/one"].size == 3


def test_unreadable_status_is_replaced() -> None:
    cluster = FakeCluster()
    job = training_job()
    job["status"] = {"version": 99}
    cluster.show(job)
    assert status_of(cluster.actions()) == replace(
        status_of(cluster.actions()), phase=TrainingJobPhase.STARTING
    )


def test_resources_line_has_requests_totals_and_idle() -> None:
    cluster = FakeCluster(cpu="4")
    cluster.run(training_job(high=2))
    line = cluster.engine.resources().line()
    assert line.startswith(
        "Cluster resources: NodeCount:1 GPURequest:0 GPULimit:0 GPUTotal:0 CPURequestMilli:2500"
    )
    assert "CPUTotalMilli:4000" in line
    assert "NodesCPUIdleMilli:{m0:1500}" in line
