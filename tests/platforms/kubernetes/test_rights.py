"""What the manifests grant: in one namespace, the few things that a master does, and to its account alone."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from elasticdl.platforms.kubernetes.pods.manifest import DEFAULT_ACCOUNT


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("elasticdl") / "manifests" / name).read_text()))


def test_the_account_and_its_role() -> None:
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


def test_manifests_leave_the_namespace_to_kubectl() -> None:
    assert all("namespace" not in document["metadata"] for document in documents("elasticdl-rbac.yaml"))


def test_two_priorities() -> None:
    [high], [low] = documents("priority-high.yaml"), documents("priority-low.yaml")
    assert {high["kind"], low["kind"]} == {"PriorityClass"}
    assert (high["metadata"]["name"], low["metadata"]["name"]) == ("high", "low")
    assert high["value"] > low["value"] > 0
    assert not high["globalDefault"]
    assert not low["globalDefault"]
