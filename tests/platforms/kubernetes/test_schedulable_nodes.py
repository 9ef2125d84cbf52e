"""On which of a cluster's nodes tests put pods, take them away and switch machines off."""

from __future__ import annotations

from typing import Any

from e2e.cluster.places import schedulable


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def taint(effect: str) -> list[dict[str, str]]:
    return [{"key": "node-role.kubernetes.io/control-plane", "effect": effect}]


def test_tainted_and_cordoned_nodes_are_not_schedulable() -> None:
    nodes = [
        node("control-plane", taints=taint("NoSchedule")),
        node("leaving", taints=taint("NoExecute")),
        node("cordoned", unschedulable=True),
        node("unloved", taints=taint("PreferNoSchedule")),
        node("worker"),
    ]
    assert schedulable(nodes) == ["unloved", "worker"]
