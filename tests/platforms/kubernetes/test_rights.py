"""What the manifests grant: in one namespace, the few things that a master does, and to its account alone."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml

from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.job_account import job_account
from elasticdl.platforms.kubernetes.pods.manifest import DEFAULT_ACCOUNT, master_pod

DEFINITION = {"model_zoo": "z", "model_def": "a.b.c", "training_data": "/d"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("elasticdl") / "manifests" / name).read_text()))


def test_default_account_is_bound_to_its_role() -> None:
    account, role, binding = documents("elasticdl-rbac.yaml")
    assert (account["kind"], account["metadata"]["name"]) == ("ServiceAccount", DEFAULT_ACCOUNT)
    assert role["kind"] == "Role"
    assert binding["kind"] == "RoleBinding"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": DEFAULT_ACCOUNT}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_nothing_beyond_what_is_used() -> None:
    rules = documents("elasticdl-rbac.yaml")[1]["rules"]
    granted = {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}
    assert granted == {
        "pods": {"get", "list", "watch", "create", "patch", "delete"},
        "services": {"get", "create", "patch"},
        "configmaps": {"get", "list", "watch", "patch"},
        "events": {"list"},
    }
    assert all(rule["apiGroups"] == [""] for rule in rules)


def rules(**flags: Any) -> dict[tuple[str, str], list[str] | None]:
    """What the master of a job with an account of its own may do: names by resource and verb; None is all."""
    given = {"image_name": "i", "namespace": "lab", "job_account": True, **flags}
    account, role, binding = job_account(JobSpec.build(job_name="job", **given))
    assert {each["metadata"]["name"] for each in (account, role, binding)} == {"elasticdl-job"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "elasticdl-job", "namespace": "lab"}]
    assert binding["roleRef"]["name"] == "elasticdl-job"
    return {
        (resource, verb): rule.get("resourceNames")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_account_of_one_job_has_the_same_verbs_and_fewer_names() -> None:
    found = rules(job_command="x", num_ps=2, max_workers=2, num_workers=1)
    everyone = documents("elasticdl-rbac.yaml")[1]["rules"]
    assert set(found) == {
        (resource, verb) for rule in everyone for resource in rule["resources"] for verb in rule["verbs"]
    }
    for verb in ("get", "list", "watch", "patch"):
        assert found["configmaps", verb] == ["elasticdl-job"]
    services = [
        "elasticdl-job-master",
        *(f"job-edljob-{role}-{n}" for role in ("ps", "worker") for n in (0, 1)),
    ]
    assert (found["services", "get"], found["services", "patch"]) == (services, services)
    assert found["services", "create"] is None


@pytest.mark.parametrize(
    ("flags", "services"),
    [
        ({"job_command": "x", "num_workers": 3}, ["elasticdl-job-master"]),
        ({"job_command": "x", "num_ps": 1}, None),
        (
            {"max_ps": 2, "num_ps": 1, **DEFINITION},
            [f"elasticdl-job-{name}" for name in ("master", "ps-0", "ps-1")],
        ),
        ({"num_ps": 1, **DEFINITION}, None),
    ],
    ids=["no addresses", "any number of workers", "bounded", "any number of servers"],
)
def test_services_are_named_where_their_number_is_bounded(
    flags: dict[str, Any], services: list[str] | None
) -> None:
    assert rules(**flags)["services", "patch"] == services


def test_master_uses_the_account_of_its_job() -> None:
    spec = JobSpec.build(job_name="job", image_name="i", job_command="x", job_account=True)
    assert master_pod(spec)["spec"]["serviceAccountName"] == "elasticdl-job"
    assert job_account(JobSpec.build(job_name="job", image_name="i", job_command="x")) == []


def test_manifests_leave_the_namespace_to_kubectl() -> None:
    assert all("namespace" not in document["metadata"] for document in documents("elasticdl-rbac.yaml"))


def test_two_priorities() -> None:
    [high], [low] = documents("priority-high.yaml"), documents("priority-low.yaml")
    assert {high["kind"], low["kind"]} == {"PriorityClass"}
    assert (high["metadata"]["name"], low["metadata"]["name"]) == ("high", "low")
    assert high["value"] > low["value"] > 0
    assert not high["globalDefault"]
    assert not low["globalDefault"]
