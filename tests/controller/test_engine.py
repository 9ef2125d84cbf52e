"""The reconcile loop, stepped one event at a time: objects in, actions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticdl.catalog.kubernetes.cluster_state import pod_of
from elasticdl.controller.cached_documents import slim_pod
from elasticdl.controller.engine import Engine
from elasticdl.controller.reconcile.actions import (
    Action,
    DeletePod,
    DeleteTrainingJob,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.controller.reconcile.started_spec import started_annotations
from elasticdl.errors import UserError
from elasticdl.jobs.status import DesiredResult, NodeReport, RunState
from elasticdl.jobs.training_job.status import ConditionType, TrainingJobPhase, TrainingJobStatus, format_time
from elasticdl.platforms.kubernetes.client import ClusterAway
from elasticdl.scheduling.decisions import Plan
from elasticdl.scheduling.planner import Planner
from tests.controller.builders import (
    NOW,
    Document,
    FakeCluster,
    desired_of,
    node,
    of_kind,
    pod,
    record,
    report,
    status_of,
    training_job,
    with_status,
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


def pinned(document: Document, size: int) -> Document:
    return edited(document, trainer={**document["spec"]["trainer"], "replicas": size})


def test_pinned_size_is_written() -> None:
    cluster = FakeCluster()
    job = training_job(high=3)
    cluster.run(job)
    cluster.show(pinned(job, 2))
    actions = cluster.actions()
    assert desired_of(actions).nodes == {"worker": 2}
    [event] = of_kind(EmitEvent, actions)
    assert (event.reason, event.message) == ("Shrink", "Shrinks from 3 to 2: its size is pinned to 2.")


def test_pinned_size_without_room_stops_nothing() -> None:
    cluster = FakeCluster(cpu="3")
    job = training_job(high=3)
    cluster.run(job)
    cluster.show(pinned(job, 3))
    actions = cluster.actions()
    assert not of_kind(DeletePod, actions)
    assert not of_kind(WriteDesired, actions)
    cluster.show(node("m1"))
    assert desired_of(cluster.actions()).nodes == {"worker": 3}


def test_pinned_size_without_room_is_a_condition_and_one_event() -> None:
    cluster = FakeCluster(cpu="3")
    job = training_job(high=3)
    cluster.run(job)
    cluster.show(pinned(job, 3))
    actions = cluster.actions()
    [event] = of_kind(EmitEvent, actions)
    words = (
        "Keeps 2 of the 3 that are pinned: 1 more of cpu=1, memory=1Gi wait until other jobs or pods release "
        "capacity."
    )
    assert (event.reason, event.message, event.is_warning) == ("WaitsForRoom", words, False)
    status = status_of(actions)
    condition = status.condition(ConditionType.RESIZING)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "WaitsForRoom", words)
    cluster.show(with_status(pinned(job, 3), status))
    assert not of_kind(EmitEvent, cluster.actions())
    # Given back to the controller, the job waits for nothing.
    cluster.show(with_status(job, status))
    after = status_of(cluster.actions()).condition(ConditionType.RESIZING)
    assert after is not None
    assert (after.status, after.reason) == ("False", "SizeReached")


def draining(name: str) -> Document:
    machine = node(name)
    machine["spec"] = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}
    return machine


def test_trainers_on_a_machine_that_goes_are_replaced_elsewhere() -> None:
    cluster = FakeCluster(machines=2)
    job = training_job(low=2, high=2)
    spec = cluster.run(job, machine="m0")
    cluster.show(draining("m0"))
    actions = cluster.actions()
    desired = desired_of(actions)
    assert (desired.nodes, set(desired.victims)) == ({}, {"worker-0", "worker-1"})
    [event] = of_kind(EmitEvent, actions)
    assert event.reason == "Move"
    assert "m0 is about to be removed" in event.message
    # While they drain, and while their replacements start, nothing more is asked for.
    going = replace(report(2), nodes=tuple(replace(each, is_draining=True) for each in report(2).nodes))
    cluster.show(record(spec, report=going, generation=desired.generation, victims=desired.victims))
    assert not of_kind(WriteDesired, cluster.actions())


def test_trainers_that_the_master_does_not_drain_are_named_once() -> None:
    cluster = FakeCluster(machines=2)
    spec = cluster.run(training_job(low=2, high=2), machine="m0")
    cluster.show(draining("m0"))
    desired = desired_of(cluster.actions())
    refused = DesiredResult(ignored_victims=dict.fromkeys(desired.victims, "known by their addresses"))
    said = report(2, observed_generation=desired.generation, desired_result=refused)
    cluster.show(record(spec, report=said, generation=desired.generation, victims=desired.victims))
    assert not of_kind(WriteDesired, cluster.actions())


def test_trainers_stay_where_they_are_while_another_is_replaced() -> None:
    cluster = FakeCluster(machines=2)
    spec = cluster.run(training_job(low=2, high=2), machine="m0")
    cluster.show(draining("m0"), record(spec, report=replace(report(2), nodes=report(1).nodes)))
    assert not of_kind(WriteDesired, cluster.actions())


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


def test_master_that_its_machine_does_not_start_stalls_the_job_until_it_runs() -> None:
    cluster = FakeCluster()
    spec = cluster.started(training_job())["one"]
    master = pod(spec, "master-0", phase="Pending")
    master["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
    cluster.show(record(spec), master)
    cluster.actions()
    words = 'FailedMount: configmap "data" not found'
    cluster.engine.view.explain_pod(master, words)
    stalled = status_of(cluster.actions()).condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.is_true, stalled.reason) == (True, "VolumeNotMounted")
    assert stalled.message == f"master: {words}"
    cluster.show(pod(spec, "master-0"))
    assert not is_stalled(status_of(cluster.actions()))


@pytest.mark.parametrize(("failures", "ready", "is_loop"), [(0, 0, False), (1, 0, True), (1, 1, False)])
def test_failed_worker_stalls_the_job_while_none_is_ready(failures: int, ready: int, is_loop: bool) -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job(high=1))
    ended = tuple(
        NodeReport(
            name=f"worker-{each}", role="worker", phase="failed", reason="error", message="exit code 3"
        )
        for each in range(failures)
    )
    of_master = report(ready)
    cluster.show(record(spec, report=replace(of_master, nodes=(*of_master.nodes, *ended))))
    status = status_of(cluster.actions())
    assert is_stalled(status) == is_loop
    stalled = status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert stalled.reason == ("CrashLoop" if is_loop else "NoTrouble")


def test_node_that_its_machine_does_not_start_stalls_the_job() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job(high=2))
    waits = NodeReport(name="worker-1", role="worker", phase="pending", message="FailedMount: no such volume")
    cluster.show(record(spec, report=replace(report(1), nodes=(*report(1).nodes, waits))))
    stalled = status_of(cluster.actions()).condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.reason, stalled.message) == ("VolumeNotMounted", "worker-1: FailedMount: no such volume")


def is_stalled(status: TrainingJobStatus) -> bool:
    stalled = status.condition(ConditionType.STALLED)
    return stalled is not None and stalled.is_true


class BrokenPlanner(Planner):
    """Has a defect while `is_broken`."""

    is_broken = False

    def _plan(self) -> Plan:
        if self.is_broken:
            raise ZeroDivisionError
        return super()._plan()


def test_job_gets_a_new_master_while_the_planner_fails_and_grows_afterwards() -> None:
    planner = BrokenPlanner()
    cluster = FakeCluster(cpu="2", engine=Engine(planner=planner))
    spec = cluster.run(training_job(high=3))
    cluster.step()
    planner.is_broken = True
    cluster.remove(pod(spec, "master-0"))
    cluster.show(node("m1"))
    actions = cluster.actions()
    assert of_kind(StartMaster, actions)
    assert not of_kind(WriteDesired, actions)
    planner.is_broken = False
    cluster.show(pod(spec, "master-0"))
    assert desired_of(cluster.actions()).nodes == {"worker": 3}


def test_cached_pod_has_all_requests_that_the_scheduler_counts() -> None:
    def part(amount: str, **fields: str) -> Document:
        return {"name": "any", "resources": {"requests": {"cpu": amount}}, **fields}

    spec = {
        "nodeName": "m0",
        "containers": [part("1")],
        "initContainers": [part("300m", restartPolicy="Always"), part("2")],
        "overhead": {"cpu": "50m"},
    }
    metadata = {"name": "any", "namespace": "default", "uid": "1", "resourceVersion": "1"}
    for resources in ({}, {"requests": {"cpu": "4"}}):
        whole = {
            "metadata": metadata,
            "spec": {**spec, "resources": resources},
            "status": {"phase": "Running"},
        }
        assert pod_of(slim_pod(whole)) == pod_of(whole)
        assert pod_of(whole).requests["cpu"] == (4_050 if resources else 2_350)


def test_resources_line_has_requests_totals_and_idle() -> None:
    cluster = FakeCluster(cpu="4")
    cluster.run(training_job(high=2))
    line = cluster.engine.resources().line()
    assert line.startswith(
        "Cluster resources: NodeCount:1 GPURequest:0 GPULimit:0 GPUTotal:0 CPURequestMilli:2500"
    )
    assert "CPUTotalMilli:4000" in line
    assert "NodesCPUIdleMilli:{m0:1500}" in line


def test_refused_start_is_reported_and_retried_after_a_backoff() -> None:
    cluster = FakeCluster()
    cluster.show(training_job())
    start = cluster.actions()[0]
    words = 'pods "elasticdl-one-master" is forbidden: serviceaccount "elasticdl" not found'
    cluster.engine.failed("elasticdl.org/default/one", start, UserError(words), now=NOW)
    actions = cluster.actions(now=NOW + 1)
    assert not of_kind(StartJob, actions)
    status = status_of(actions)
    stalled = status.condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "ActionRefused")
    assert words in status.message
    assert [each.reason for each in of_kind(EmitEvent, actions)] == ["ActionRefused"]
    assert of_kind(StartJob, cluster.actions(now=NOW + 2))


def test_backoff_grows_with_each_refusal_and_ends_with_a_success() -> None:
    cluster = FakeCluster()
    cluster.show(training_job())
    actions = cluster.actions()
    for now in (NOW, NOW + 2):
        cluster.engine.failed("elasticdl.org/default/one", actions[0], UserError("refused"), now=now)
    assert not of_kind(StartJob, cluster.actions(now=NOW + 5))
    assert of_kind(StartJob, cluster.actions(now=NOW + 6))
    cluster.engine.carried_out("elasticdl.org/default/one", actions)
    cluster.engine.failed("elasticdl.org/default/one", actions[0], UserError("refused"), now=NOW + 6)
    assert of_kind(StartJob, cluster.actions(now=NOW + 8))


def started(cluster: FakeCluster, document: Document, workers: int) -> None:
    """Runs a job whose record says what it was started with, as the effects write it."""
    [start] = of_kind(StartJob, started_actions(cluster, document))
    running = record(start.spec, report=report(workers))
    running["metadata"]["annotations"] = started_annotations(start.started_from, job=start.job.name)
    cluster.show(running, pod(start.spec, "master-0"))
    cluster.show(*(pod(start.spec, f"worker-{number}") for number in range(workers)))


def started_actions(cluster: FakeCluster, document: Document) -> tuple[Action, ...]:
    cluster.show(document)
    return cluster.actions()


def edited(document: Document, **fields: Any) -> Document:
    return {
        **document,
        "spec": {**document["spec"], **fields},
        "metadata": {**document["metadata"], "generation": 2},
    }


def test_edit_that_a_running_job_cannot_follow_is_reported_and_not_applied() -> None:
    cluster = FakeCluster(cpu="3")
    job = training_job(high=2)
    started(cluster, job, workers=2)
    trainer = {**job["spec"]["trainer"], "max-instance": 9}
    cluster.show(node("m1", cpu="8"), edited(job, image="image:2", trainer=trainer))
    actions = cluster.actions()
    assert not of_kind(WriteDesired, actions)
    status = status_of(actions)
    valid = status.condition(ConditionType.VALID)
    assert valid is not None
    assert (valid.status, valid.reason) == ("False", "EditNotApplied")
    assert "spec.image: cannot be changed" in valid.message
    assert "9 is more than 2" in valid.message
    assert status.phase is TrainingJobPhase.RUNNING
    assert str(status.trainer) == "2/2 (1–2)"
    assert [each.reason for each in of_kind(EmitEvent, actions)] == ["EditNotApplied"]


def test_invalid_edit_keeps_what_an_earlier_edit_has_changed() -> None:
    cluster = FakeCluster()
    job = training_job(high=3)
    started(cluster, job, workers=3)
    trainer = {**job["spec"]["trainer"], "max-instance": 1}
    cluster.show(edited(job, trainer=trainer))
    assert desired_of(cluster.actions()).nodes == {"worker": 1}
    wrong = edited(job, trainer={**trainer, "min-instance": 0})
    wrong["metadata"]["generation"] = 3
    cluster.show(wrong)
    actions = cluster.actions()
    assert desired_of(actions).nodes == {"worker": 1}
    assert str(status_of(actions).trainer).endswith("/1 (1)")


def test_suspended_job_stays_suspended_while_an_edit_of_it_is_invalid() -> None:
    cluster = FakeCluster()
    job = training_job(high=3)
    started(cluster, job, workers=3)
    cluster.show(edited(job, suspend=True, fault_tolernt=True))
    actions = cluster.actions()
    assert of_kind(DeletePod, actions)
    assert status_of(actions).phase is TrainingJobPhase.SUSPENDED


def test_job_stays_elastic_while_an_edit_of_it_is_invalid() -> None:
    cluster = FakeCluster(cpu="2")
    job = training_job(high=3)
    started(cluster, job, workers=1)
    cluster.show(edited(job, fault_tolernt=True), node("m1"))
    actions = cluster.actions()
    assert desired_of(actions).nodes == {"worker": 3}
    assert "fault_tolerant" in status_of(actions).message


def test_range_is_narrowed_while_the_job_runs() -> None:
    cluster = FakeCluster()
    job = training_job(high=3)
    started(cluster, job, workers=3)
    cluster.show(edited(job, trainer={**job["spec"]["trainer"], "max-instance": 2}))
    actions = cluster.actions()
    assert desired_of(actions).nodes == {"worker": 2}
    valid = status_of(actions).condition(ConditionType.VALID)
    assert valid is not None
    assert valid.is_true


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "CrashLoop"),
        ({"waiting": {"reason": "InvalidImageName", "message": "no name"}}, "ImageMissing"),
        ({"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}, "PodNotRunning"),
    ],
)
def test_master_that_cannot_start_stalls_the_job(state: Document, reason: str) -> None:
    cluster = FakeCluster()
    spec = cluster.started(training_job())["one"]
    waiting = pod(spec, "master-0", phase="Pending")
    waiting["status"]["containerStatuses"] = [{"name": "master", "state": state}]
    cluster.show(record(spec), waiting)
    stalled = status_of(cluster.actions()).condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", reason)


def test_worker_that_finds_no_machine_is_reported() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job())
    waiting = pod(spec, "worker-2", phase="Pending")
    del waiting["spec"]["nodeName"], waiting["status"]["containerStatuses"]
    message = "0/1 nodes are available: 1 Insufficient cpu."
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    cluster.show(waiting)
    stalled = status_of(cluster.actions()).condition(ConditionType.STALLED)
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "Unschedulable")
    assert "Insufficient cpu" in stalled.message


def test_transition_time_changes_with_the_status_of_a_condition_only() -> None:
    cluster = FakeCluster()
    spec = cluster.run(training_job(high=3))
    status = status_of(cluster.actions())
    cluster.show(training_job(high=3, status=status))
    cluster.remove(pod(spec, "master-0"))
    later = status_of(cluster.actions(now=NOW + 30))
    before, after = status.condition(ConditionType.ADMITTED), later.condition(ConditionType.ADMITTED)
    assert before is not None
    assert after is not None
    assert after.last_transition_time == before.last_transition_time == format_time(NOW)
    cluster.show(record(spec, report=report(0)), training_job(high=3, status=later))
    ready = status_of(cluster.actions(now=NOW + 60)).condition(ConditionType.READY)
    assert ready is not None
    assert (ready.status, ready.last_transition_time) == ("False", format_time(NOW + 60))


def test_job_of_a_queue_runs_with_the_size_that_was_admitted() -> None:
    cluster = FakeCluster()
    job = training_job(low=1, high=3, suspend=False)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    assert cluster.started(job)["one"].nodes.num_workers == 1


def test_resumed_job_gets_a_master_that_recovers_from_its_record() -> None:
    cluster = FakeCluster()
    job = training_job()
    spec = cluster.run(job)
    suspended = edited(job, suspend=True)
    cluster.show(suspended)
    for name in [each.name for each in of_kind(DeletePod, cluster.actions())]:
        cluster.remove(pod(spec, name.removeprefix("one-")))
    assert status_of(cluster.actions()).phase is TrainingJobPhase.SUSPENDED
    assert not of_kind(StartMaster, cluster.actions())
    resumed = edited(job, suspend=False)
    resumed["metadata"]["generation"] = 3
    cluster.show(resumed)
    actions = cluster.actions()
    assert not of_kind(StartJob, actions)
    [start] = of_kind(StartMaster, actions)
    assert start.record["metadata"]["uid"] == "record-one"


def test_job_with_a_pod_that_cannot_be_read_stops_no_other() -> None:
    cluster = FakeCluster(machines=2)
    spec = cluster.run(training_job("broken", high=1))
    nonsense = pod(spec, "worker-1")
    nonsense["status"]["containerStatuses"] = ["nonsense"]
    cluster.show(nonsense)
    assert set(cluster.started(training_job("other", high=1))) == {"other"}


def test_api_server_that_does_not_answer_is_no_trouble_of_a_job() -> None:
    cluster = FakeCluster()
    cluster.show(training_job())
    start = cluster.actions()[0]
    cluster.engine.failed("elasticdl.org/default/one", start, ClusterAway("it is away"), now=NOW)
    assert of_kind(StartJob, cluster.actions(now=NOW + 1))


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_clock_that_jumps_delays_neither_retries_nor_progress(jump: float) -> None:
    cluster = FakeCluster(machines=2)
    spec = cluster.run(training_job(high=3))
    status = status_of(cluster.actions())
    cluster.show(training_job(high=3, status=status), training_job("two", high=1))
    start = cluster.actions("two", now=NOW + 1)[0]
    cluster.engine.failed("elasticdl.org/default/two", start, UserError("refused"), now=NOW + 1)
    assert not of_kind(StartJob, cluster.actions("two", now=NOW + 2))
    cluster.show(record(spec, report=report(3, samples_done=5, samples_desired=10)))
    later = cluster.step(NOW + 8 + jump).actions
    again = cluster.step(NOW + 8 + jump + 6).actions
    started = [*later.get("elasticdl.org/default/two", ()), *again.get("elasticdl.org/default/two", ())]
    assert of_kind(StartJob, tuple(started))
    written = [*later.get("elasticdl.org/default/one", ()), *again.get("elasticdl.org/default/one", ())]
    assert of_kind(WriteStatus, tuple(written))[-1].status.progress.samples_done == 5


def test_recreated_job_waits_for_the_record_of_the_one_before() -> None:
    cluster = FakeCluster()
    job = training_job()
    spec = cluster.run(job)
    cluster.remove(job)
    again = {**job, "metadata": {**job["metadata"], "uid": "another"}}
    cluster.show(again)
    actions = cluster.actions()
    assert not of_kind(StartJob, actions)
    assert not of_kind(DeletePod, actions)
    admitted = status_of(actions).condition(ConditionType.ADMITTED)
    assert admitted is not None
    assert admitted.reason == "NameInUse"
    # The garbage collector comes by.
    for name in ("master-0", "worker-0", "worker-1", "worker-2"):
        cluster.remove(pod(spec, name))
    cluster.remove(record(spec))
    assert of_kind(StartJob, cluster.actions())


@pytest.mark.parametrize("capacity", ["-4", "plenty", ""])
def test_machine_whose_capacity_is_nonsense_is_left_out(capacity: str) -> None:
    cluster = FakeCluster(cpu="3")
    cluster.show(node("liar", cpu=capacity))
    assert cluster.started(training_job(low=1, high=9))["one"].nodes.num_workers == 2


def test_machine_that_reports_less_than_runs_on_it_stops_nothing() -> None:
    cluster = FakeCluster()
    cluster.run(training_job(low=1, high=3))
    cluster.show(node("m0", cpu="1"))
    actions = cluster.actions()
    assert not of_kind(DeletePod, actions)
    assert not of_kind(WriteDesired, actions)
