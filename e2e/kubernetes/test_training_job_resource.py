"""The TrainingJob resource on a real API server: explain, columns, status, scale, EDL's documents, bad documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.training_jobs import EDL, OURS, install_definitions, no_controller
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.status import (
    ConditionType,
    ProgressStatus,
    RoleStatus,
    TrainingJobPhase,
    TrainingJobStatus,
)


@pytest.fixture(autouse=True)
def resources(kubectl: Kubectl) -> Iterator[None]:
    # A controller would write the statuses, too. Its lock is taken after the room, as everywhere: no deadlock.
    with no_controller():
        install_definitions()
        yield


def document(name: str, *, api_version: str = "elasticdl.org/v1", **spec: Any) -> dict[str, Any]:
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return {
        "apiVersion": api_version,
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "image": "registry/train:1",
            "fault_tolerant": True,
            # A controller in the cluster leaves it alone.
            "suspend": True,
            "trainer": {
                "entrypoint": "python train_ft.py",
                "min-instance": 2,
                "max-instance": 6,
                "resources": requests,
            },
            "pserver": {"min-instance": 1, "max-instance": 1, "resources": requests},
            **spec,
        },
    }


def create(kubectl: Kubectl, wanted: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        kubectl("create", "--filename=-", "--output=json", text=json.dumps(wanted))
    )
    return found


def read(kubectl: Kubectl, name: str, kind: str = OURS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", kind, name, "--output=json"))
    return found


def pinned(kubectl: Kubectl, name: str) -> int | None:
    return parse_training_job(read(kubectl, name)).spec.trainer.pinned


def test_explain_shows_the_fields_of_trainers(kubectl: Kubectl) -> None:
    # The API server publishes a new definition some seconds after it serves it.
    wait_until(
        lambda: kubectl.attempt("explain", "tj.spec.trainer").returncode == 0, "the fields are published"
    )
    text = kubectl("explain", "tj.spec.trainer")
    assert "min-instance" in text
    assert "Fewest trainers" in " ".join(text.split())


def test_columns_show_what_the_status_says(kubectl: Kubectl) -> None:
    created = create(kubectl, document("columns"))
    status = TrainingJobStatus(
        phase=TrainingJobPhase.RUNNING,
        trainer=RoleStatus(ready=3, desired=4, min=2, max=6),
        pserver=RoleStatus(ready=1, desired=1, min=1, max=1),
        progress=ProgressStatus(samples_done=1, samples_total=4, remaining_seconds=60.0),
    ).with_condition(ConditionType.READY, True, reason="AllReady", now_seconds=0.0)
    path = f"/apis/elasticdl.org/v1/namespaces/{kubectl.namespace}/trainingjobs/columns/status"
    whole = {**created, "status": status.to_document()}
    kubectl("replace", "--raw", path, "--filename=-", text=json.dumps(whole))
    header, row = kubectl("get", "tj", "columns").splitlines()
    assert header.split() == ["NAME", "PHASE", "TRAINERS", "PSERVERS", "PROGRESS", "LEFT", "AGE"]
    assert row.split()[:-1] == ["columns", "Running", "3/4", "(2–6)", "1/1", "(1)", "25", "%", "1m"]
    # Nothing was dropped on the way.
    assert TrainingJobStatus.from_document(read(kubectl, "columns")["status"]) == status


def test_scale_pins_the_number_of_trainers(kubectl: Kubectl) -> None:
    create(kubectl, document("scaled"))
    assert pinned(kubectl, "scaled") is None
    kubectl("scale", "tj/scaled", "--replicas=4")
    assert pinned(kubectl, "scaled") == 4


def test_autoscaler_pins_the_number_of_trainers_of_a_pinned_job(kubectl: Kubectl) -> None:
    create(kubectl, document("autoscaled"))
    # Autoscalers leave a target of size 0 alone.
    kubectl("scale", "tj/autoscaled", "--replicas=2")
    target = {"apiVersion": "elasticdl.org/v1", "kind": "TrainingJob", "name": "autoscaled"}
    autoscaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "autoscaled"},
        # Without metrics, it can only keep to its range.
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5},
    }
    create(kubectl, autoscaler)
    wait_until(lambda: pinned(kubectl, "autoscaled") == 3, "the autoscaler has changed the size")


def test_scale_works_for_a_job_without_a_trainer_section(kubectl: Kubectl) -> None:
    job = {
        "model": {"job_command": "python train.py"},
        "nodes": {
            "min_workers": 1,
            "max_workers": 3,
            "worker_resource_request": {"cpu": "100m", "memory": "64Mi"},
        },
        "cluster": {"image_name": "registry/train:1"},
    }
    wanted = document("whole")
    wanted["spec"] = {"job": job, "suspend": True}
    create(kubectl, wanted)
    kubectl("scale", "tj/whole", "--replicas=2")
    found = parse_training_job(read(kubectl, "whole"))
    assert found.spec.trainer.pinned == 2
    assert found.spec.job is not None


def test_document_of_edl_is_kept_unchanged(kubectl: Kubectl) -> None:
    wanted = document(
        "edl",
        api_version="paddlepaddle.org/v1",
        VolumeMounts=[{"name": "data", "mountPath": "/data"}],
        volumes=[{"name": "data", "hostPath": {"path": "/data"}}],
    )
    create(kubectl, wanted)
    found = parse_training_job(read(kubectl, "edl", EDL))
    assert found.api_version == "paddlepaddle.org/v1"
    assert found.spec.volume_mounts == ({"name": "data", "mountPath": "/data"},)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"trainr": {}}, "trainr"),
        ({"port": "http"}, "spec.port"),
        ({"trainer": {"min-instance": -1}}, "min-instance"),
    ],
)
def test_document_that_fails_the_schema_is_refused(
    kubectl: Kubectl, spec: dict[str, Any], words: str
) -> None:
    refused = kubectl.attempt("create", "--filename=-", text=json.dumps(document("wrong", **spec)))
    assert refused.returncode != 0
    assert words in refused.stderr
