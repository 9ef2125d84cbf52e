"""The state of a job, concluded from its job record and its master's pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.status import RunState, StatusError


def record(**status: Any) -> dict[str, Any]:
    return {"metadata": {}, "data": {"status.json": json.dumps(status)} if status else {}}


def master(phase: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "status": {"phase": phase}}


def job(document: dict[str, Any], pod: dict[str, Any] | None) -> ObservedJob:
    return ObservedJob(name="job", document=document, master=pod)


def not_ready(*, containers: str) -> dict[str, Any]:
    pod = master("Running")
    pod["status"] |= {
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": containers},
        ],
        "containerStatuses": [{"ready": True, "state": {"running": {"startedAt": "2026-11-16T05:35:15Z"}}}],
    }
    return pod


def unreachable() -> dict[str, Any]:
    """Not ready by the cluster's word, its container ready by the last word of its machine."""
    return not_ready(containers="True")


def test_master_beside_a_container_that_is_not_ready_is_running() -> None:
    assert job(record(state="running"), not_ready(containers="False")).state is RunState.RUNNING


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_master_without_a_status_is_starting(phase: str) -> None:
    observed = job(record(), master(phase))
    assert observed.state is RunState.STARTING
    assert not observed.has_started


def test_state_of_a_running_master_is_the_reported_one() -> None:
    assert job(record(state="stopping"), master("Running")).state is RunState.STOPPING


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped"])
def test_final_state_outlasts_the_pods(state: str) -> None:
    observed = job(record(state=state), None)
    assert str(observed.state) == state
    assert observed.trouble == ""
    assert observed.is_removable


@pytest.mark.parametrize(
    "pod",
    [
        None,
        master("Running", deletionTimestamp="2026-01-01T00:00:00Z"),
        master("Failed"),
        master("Succeeded"),
        unreachable(),
    ],
)
def test_job_without_a_master_that_is_not_over_is_interrupted(pod: dict[str, Any] | None) -> None:
    observed = job(record(state="running"), pod)
    assert observed.state is RunState.INTERRUPTED
    assert observed.is_removable


def test_status_has_what_is_known_from_outside() -> None:
    document = record(state="running", step=7)
    document["data"]["spec.yaml"] = "kind: evaluate\n"
    status = job(document, None).status
    assert (status.job, status.kind, status.step) == ("job", "evaluate", 7)
    assert status.state is RunState.INTERRUPTED
    assert status.trouble == "The master: its pod is gone."


def test_unreadable_status_keeps_a_running_job_and_not_a_dead_one() -> None:
    document = {"metadata": {}, "data": {"status.json": "{"}}
    with pytest.raises(StatusError):
        _ = job(document, None).state
    assert job(document, None).is_removable
    assert not job(document, master("Running")).is_removable


def test_desired_state_is_unobserved_until_the_master_reports_its_generation() -> None:
    desired = Desired(generation=3, nodes={"worker": 5})
    document = record(state="running", observedGeneration=2)
    document["data"]["desired.json"] = desired.to_text()
    assert job(document, master("Running")).unobserved_desired == desired
    document = record(state="running", observedGeneration=3)
    document["data"]["desired.json"] = desired.to_text()
    assert job(document, master("Running")).unobserved_desired == Desired(generation=3)


def test_unreadable_desired_state_is_replaced_by_the_next_generation() -> None:
    document = record(state="running", observedGeneration=3)
    document["data"]["desired.json"] = "[]"
    assert job(document, master("Running")).unobserved_desired == Desired(generation=3)
