"""The manifest of the controller grants what the controller does, and no more."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticdl.cli.controller import controller
from elasticdl.controller.controller import WATCHED
from elasticdl.controller.election import LEASE_NAME
from elasticdl.controller.serving.admission import PATH
from elasticdl.controller.serving.webhook import CONFIGURATION, NAME, SECRET_NAME
from elasticdl.platforms.kubernetes.api_resources import resource_of


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("elasticdl") / "manifests/edl-controller.yaml").read_text()))


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = [each for each in documents if each["kind"] == kind]
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
