"""The manifest of the controller grants what the controller does, and no more."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticdl.cli.controller import controller
from elasticdl.controller.controller import WATCHED
from elasticdl.controller.effects import Effects
from elasticdl.controller.election import LEASE_NAME
from elasticdl.controller.reconcile.actions import (
    DeletePod,
    DeleteTrainingJob,
    EmitEvent,
    StartJob,
    StartMaster,
    WriteDesired,
    WriteStatus,
)
from elasticdl.controller.serving.admission import PATH
from elasticdl.controller.serving.webhook import CONFIGURATION, NAME, SECRET_NAME
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.status import TrainingJobStatus
from elasticdl.platforms.kubernetes.api_resources import resource_of
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import FAST, MASTER, NAMESPACE, RECORD, ApiServer
from tests.controller.builders import training_job


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("elasticdl") / "manifests/edl-controller.yaml").read_text()))


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Of the controller itself: what the dashboard needs beside is tested with the dashboard."""
    [found] = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == NAME]
    return found


def granted(role: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_everything_that_is_watched_may_be_watched(documents: list[dict[str, Any]]) -> None:
    rights = granted(of_kind(documents, "ClusterRole"))
    for watched in WATCHED:
        resource = resource_of(watched.resource)
        assert {"list", "watch"} <= rights[resource.group, resource.plural]


_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def test_every_request_of_the_effects_is_granted(
    documents: list[dict[str, Any]], api: ApiServer, tmp_path: Path
) -> None:
    path = api.kubeconfig(tmp_path / "config")
    job = parse_training_job(api.put("trainingjobs", training_job("job", namespace=NAMESPACE)))
    spec = job_spec_of(job)

    async def work() -> None:
        async with Cluster(find_access(environment={"KUBECONFIG": str(path)}), patience=1.0) as cluster:
            effects = Effects(cluster, generation=lambda: 1, is_leader=lambda: True, timing=FAST)
            start = StartJob(job=job, spec=spec, started_from={})
            assert await effects.carry_out([start, EmitEvent(job=job, reason="Admit", message="It starts.")])
            record = api.objects["configmaps", RECORD]
            master = DeletePod(job=job, name=MASTER, uid="", reason="it has ended")
            assert await effects.carry_out([master, StartMaster(job=job, record=record, spec=spec)])
            desired = WriteDesired(job=job, record=record, desired=Desired().with_nodes({"worker": 2}))
            status = WriteStatus(job=job, status=TrainingJobStatus())
            assert await effects.carry_out([desired, status, DeleteTrainingJob(job=job)])

    asyncio.run(work())
    rights = {resource: verbs for (_, resource), verbs in granted(of_kind(documents, "ClusterRole")).items()}
    used: dict[str, set[str]] = {}
    for method, kind, _ in api.asked:
        # Statuses are the only part of TrainingJobs that is written.
        resource = "trainingjobs/status" if (method, kind) == ("PUT", "trainingjobs") else kind
        used.setdefault(resource, set()).add(_VERBS[method])
    assert used.keys() >= {"pods", "configmaps", "secrets", "services", "networkpolicies", "events"}
    for resource, verbs in used.items():
        assert verbs <= rights[resource], resource


def test_nothing_beyond_what_is_used(documents: list[dict[str, Any]]) -> None:
    rights = granted(of_kind(documents, "ClusterRole"))
    assert rights["", "secrets"] == {"get", "create"}
    assert all("*" not in verbs for verbs in rights.values())
    assert not {"escalate", "bind", "impersonate"} & {verb for verbs in rights.values() for verb in verbs}


def test_lease_is_that_of_the_election(documents: list[dict[str, Any]]) -> None:
    rules = of_kind(documents, "Role")["rules"]
    names = {rule["resources"][0]: rule["resourceNames"] for rule in rules if "update" in rule["verbs"]}
    assert names == {"leases": [LEASE_NAME], "secrets": [SECRET_NAME]}


def test_webhook_is_asked_where_it_answers(documents: list[dict[str, Any]]) -> None:
    configuration = of_kind(documents, CONFIGURATION)
    [webhook] = configuration["webhooks"]
    service = of_kind(documents, "Service")
    assert configuration["metadata"]["name"] == service["metadata"]["name"] == NAME
    assert webhook["clientConfig"]["service"] == {"name": NAME, "namespace": "paddlecloud", "path": PATH}
    # A cluster without a controller stores TrainingJobs unchecked.
    assert webhook["failurePolicy"] == "Ignore"


def test_command_of_the_deployment_is_a_command(documents: list[dict[str, Any]]) -> None:
    [container] = of_kind(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    program, command, *flags = container["command"]
    assert (program, command) == ("elasticdl", "controller")
    result = CliRunner().invoke(controller, [*flags, "--help"])
    assert result.exit_code == 0, result.output


def test_replicas_are_neither_root_nor_able_to_write(documents: list[dict[str, Any]]) -> None:
    deployment = of_kind(documents, "Deployment")
    assert deployment["metadata"]["name"] == "training-job-controller"
    assert deployment["metadata"]["namespace"] == "paddlecloud"
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
