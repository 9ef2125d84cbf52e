"""Node and Pod documents of a cluster become the planner's input."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.catalog.kubernetes.cluster_state import machine_of, pod_of, state_from_documents
from elasticdl.errors import UserError
from elasticdl.scheduling.cluster import PodPhase
from elasticdl.scheduling.demand import JobDemand, RoleGroup
from elasticdl.scheduling.planner import plan
from elasticdl.scheduling.requirements import TaintEffect


def node(name: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a"}},
        "spec": {"podCIDR": "10.244.0.0/24"},
        "status": {
            "allocatable": {
                "cpu": "3920m",
                "ephemeral-storage": "95551679124",
                "hugepages-2Mi": "0",
                "memory": "15835304Ki",
                "nvidia.com/gpu": "2",
                "pods": "110",
            },
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
        },
    }
    for key, value in changes.items():
        document[key] = {**document.get(key, {}), **value}
    return document


def pod(
    name: str, *, node_name: str | None = "n1", labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            **({"nodeName": node_name} if node_name else {}),
            **spec,
        },
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def ours(job: str, role: str, number: int, node_name: str | None = "n1") -> dict[str, Any]:
    labels = {"app": "elasticdl", "elasticdl-job-name": job, "elasticdl-replica-type": role}
    return pod(f"elasticdl-{job}-{role}-{number}", node_name=node_name, labels=labels)


def test_node_reports_what_pods_may_request() -> None:
    machine = machine_of(node("n1"))
    assert machine.allocatable == {"cpu": 3920, "memory": 15835304 * 1024, "nvidia.com/gpu": 2, "pods": 110}
    assert machine.labels["zone"] == "a"
    assert machine.is_ready
    assert not machine.is_cordoned


def test_cordoned_tainted_and_unready_nodes_are_recognised() -> None:
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    machine = machine_of(
        node(
            "n1",
            spec={"unschedulable": True, "taints": [taint]},
            status={"conditions": [{"type": "Ready", "status": "Unknown"}]},
        )
    )
    assert (machine.is_ready, machine.is_cordoned) == (False, True)
    assert machine.taints[0].effect is TaintEffect.NO_SCHEDULE


@pytest.mark.parametrize(
    "taint", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"]
)
def test_node_that_an_autoscaler_removes_takes_no_pods(taint: str) -> None:
    machine = machine_of(node("n1", spec={"taints": [{"key": taint, "effect": "NoSchedule"}]}))
    assert machine.is_draining
    assert not machine.takes_pods


def test_deleted_node_takes_no_pods() -> None:
    deleted = node("n1")
    deleted["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    assert not machine_of(deleted).takes_pods


@pytest.mark.parametrize(
    ("label", "value", "is_revocable"),
    [
        ("karpenter.sh/capacity-type", "spot", True),
        ("karpenter.sh/capacity-type", "on-demand", False),
        ("eks.amazonaws.com/capacityType", "SPOT", True),
        ("cloud.google.com/gke-spot", "true", True),
        ("kubernetes.azure.com/scalesetpriority", "spot", True),
    ],
)
def test_spot_node_may_be_taken_away_and_takes_pods(label: str, value: str, is_revocable: bool) -> None:
    spot = node("n1")
    spot["metadata"]["labels"] = {label: value}
    assert machine_of(spot).is_revocable is is_revocable
    assert machine_of(spot).takes_pods


def test_requests_are_those_that_the_scheduler_counts() -> None:
    document = pod(
        "p",
        initContainers=[{"name": "init", "resources": {"requests": {"cpu": "2"}}}],
        containers=[
            {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "b", "resources": {"requests": {"cpu": "1"}}},
            {"name": "c"},
        ],
        overhead={"cpu": "250m"},
        priority=1000,
    )
    read = pod_of(document)
    assert read.requests == {"cpu": 2250, "memory": 1024**3}
    assert (read.key, read.machine, read.priority, read.phase) == ("team/p", "n1", 1000, PodPhase.RUNNING)


def cpu(amount: str, **fields: str) -> dict[str, Any]:
    return {"name": "any", "resources": {"requests": {"cpu": amount}}, **fields}


def test_sidecars_count_beside_the_containers_and_the_init_containers_after_them() -> None:
    sidecar = cpu("300m", restartPolicy="Always")
    beside = pod("p", initContainers=[sidecar], containers=[cpu("500m")])
    assert pod_of(beside).requests == {"cpu": 800}
    first = pod("p", initContainers=[sidecar, cpu("1")], containers=[cpu("500m")])
    assert pod_of(first).requests == {"cpu": 1300}
    after = pod("p", initContainers=[cpu("1"), sidecar], containers=[cpu("500m")])
    assert pod_of(after).requests == {"cpu": 1000}


def test_requests_of_the_whole_pod_replace_those_of_its_containers() -> None:
    whole = {"requests": {"cpu": "2"}}
    document = pod("p", containers=[cpu("500m"), cpu("500m")], resources=whole, overhead={"cpu": "100m"})
    assert pod_of(document).requests == {"cpu": 2100}


def test_pod_without_node_is_unscheduled() -> None:
    read = pod_of(
        pod("p", node_name=None, tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}])
    )
    assert (read.machine, read.phase) == (None, PodPhase.PENDING)
    assert read.tolerations[0].value is None


def test_labels_tell_jobs_and_roles() -> None:
    state = state_from_documents(
        [node("n1"), ours("clicks", "worker", 0), ours("clicks", "master", 0), pod("web")]
    )
    (job,) = state.jobs
    assert job.key == "team/clicks"
    assert [(group.role, group.minimum, group.maximum) for group in job.groups] == [
        ("master", 1, 1),
        ("worker", 1, 1),
    ]
    assert {one.key: one.job for one in state.pods}["team/web"] is None


def test_known_job_keeps_its_bounds() -> None:
    worker = RoleGroup(role="worker", minimum=1, maximum=4, requests={"cpu": 500})
    known = JobDemand(name="clicks", namespace="team", groups=(worker,))
    state = state_from_documents([node("n1"), ours("clicks", "worker", 0)], jobs=[known])
    assert state.jobs == (known,)
    decision = plan(state).of("team/clicks")
    assert decision.size == 4


def test_finished_pods_hold_nothing() -> None:
    document = ours("clicks", "worker", 0)
    document["status"]["phase"] = "Succeeded"
    state = state_from_documents([node("n1"), document])
    assert state.jobs == ()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "Node", "metadata": {}}, "A node has no metadata.name"),
        ({"kind": "Node", "metadata": {"name": "n"}}, "node n has no status"),
        ({"kind": "Pod", "metadata": {"name": "p"}}, "pod p has no spec"),
        (node("n", status={"allocatable": {"cpu": "-4"}}), "node n: cpu: '-4' is no quantity"),
        (node("n", spec={"taints": [{"key": "a", "effect": "Never"}]}), "unknown effect 'Never'"),
    ],
)
def test_broken_document_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        state_from_documents([document])
