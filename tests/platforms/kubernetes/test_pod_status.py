"""What pods in every kind of trouble mean for their node. The documents are those of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.platforms.kubernetes.pods.status import (
    grace_seconds,
    leaving,
    lost,
    node_status,
    on_its_way,
    unreachable,
)
from elasticdl.platforms.platform import EXIT_TERMINATED, EndReason, NodePhase

PODS = Path(__file__).parent / "pods"


def pod(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PODS / f"{name}.json").read_text())
    return document


@pytest.mark.parametrize(
    ("name", "phase", "message"),
    [
        ("scheduled", NodePhase.PENDING, ""),
        ("running", NodePhase.RUNNING, ""),
        ("leaving", NodePhase.LEAVING, ""),
        ("unschedulable", NodePhase.PENDING, "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
        (
            "never-pulled",
            NodePhase.PENDING,
            'ErrImageNeverPull: Container image "localhost/no-such:1" is not present with pull policy of Never',
        ),
        ("not-pulled", NodePhase.PENDING, "ErrImagePull: rpc error"),
        (
            "back-off",
            NodePhase.PENDING,
            'ImagePullBackOff: Back-off pulling image "registry.invalid/no-such:1"',
        ),
        ("no-image-name", NodePhase.PENDING, "InvalidImageName: Failed to apply default image tag"),
        ("no-config", NodePhase.PENDING, 'CreateContainerConfigError: configmap "no-such" not found'),
    ],
)
def test_pods_that_have_not_ended(name: str, phase: NodePhase, message: str) -> None:
    status = node_status(pod(name))
    assert (status.phase, status.reason, status.exit_code) == (phase, EndReason.NONE, None)
    assert status.message.startswith(message)
    assert bool(message) == bool(status.message)
    assert (status.role, status.place) == ("worker", 0)


@pytest.mark.parametrize(
    ("name", "reason", "code", "message"),
    [
        ("completed", EndReason.COMPLETED, 0, ""),
        ("failed", EndReason.ERROR, 3, "exit code 3"),
        ("crashed", EndReason.ERROR, 139, "crashed with SIGSEGV"),
        ("killed", EndReason.KILLED, 137, "ended by SIGKILL"),
        ("out-of-memory", EndReason.OUT_OF_MEMORY, 137, "it used more memory than it may"),
        ("deadline", EndReason.KILLED, None, "DeadlineExceeded: Pod was active on the node longer"),
        ("deleted", EndReason.KILLED, None, "its pod was deleted"),
        ("killed-hard", EndReason.KILLED, None, "its pod was deleted"),
        ("no-command", EndReason.CANNOT_START, 128, "failed to create containerd task"),
    ],
)
def test_pods_that_have_ended(name: str, reason: EndReason, code: int | None, message: str) -> None:
    status = node_status(pod(name))
    assert (status.reason, status.exit_code) == (reason, code)
    assert status.message.startswith(message)
    assert status.phase is (NodePhase.SUCCEEDED if code == 0 else NodePhase.FAILED)


def test_message_of_failed_start_is_the_reason_alone() -> None:
    message = node_status(pod("no-command")).message
    assert message.endswith('exec: "no-such-command": executable file not found in $PATH: unknown')


def test_last_output_of_a_program() -> None:
    document = pod("failed")
    state = document["status"]["containerStatuses"][0]["state"]["terminated"]
    state["message"] = "Traceback ...\nValueError: too hot\n"
    assert node_status(document).message == "exit code 3; last output: ValueError: too hot"


def test_a_pod_that_has_vanished_was_killed() -> None:
    status = node_status(pod("running"), gone=True)
    assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.KILLED)


def test_vanished_pod_keeps_its_end_reason() -> None:
    assert node_status(pod("completed"), gone=True).reason is EndReason.COMPLETED


@pytest.mark.parametrize(
    ("finished", "reason"),
    [("2026-11-16T05:00:00Z", EndReason.COMPLETED), ("2026-11-16T05:00:20Z", EndReason.KILLED)],
)
def test_exit_code_0_counts_as_completed_only_before_deletion(finished: str, reason: EndReason) -> None:
    document = pod("completed")
    document["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = finished
    document["metadata"] |= {"deletionTimestamp": "2026-11-16T05:00:40Z", "deletionGracePeriodSeconds": 30}
    assert node_status(document).reason is reason


def with_end(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    document["status"]["containerStatuses"][0]["state"]["terminated"] |= fields
    return document


def test_a_node_of_ours_that_was_ended_by_a_signal_in_its_pod() -> None:
    """By a machine that shuts down, say: the pod was not deleted."""
    document = with_end(pod("failed"), exitCode=EXIT_TERMINATED, reason="Error")
    status = node_status(document)
    assert (status.reason, status.message) == (EndReason.KILLED, "ended by SIGTERM")


@pytest.mark.parametrize(("code", "reason"), [(255, "Unknown"), (137, "ContainerStatusUnknown")])
def test_a_machine_that_was_started_again_does_not_know_how_its_containers_ended(
    code: int, reason: str
) -> None:
    """The first is what containerd makes of a container whose process is gone, the second what a kubelet makes of one
    that containerd does not know.
    """
    status = node_status(with_end(pod("failed"), exitCode=code, reason=reason, message="lost"))
    assert (status.phase, status.reason, status.exit_code) == (NodePhase.FAILED, EndReason.KILLED, code)
    assert status.message == "its machine was started again, or lost sight of it"


@pytest.mark.parametrize("name", ["running", "failed", "completed", "deleted"])
def test_stopped_pod_that_vanished_is_not_failed(name: str) -> None:
    assert node_status(pod(name), gone=True, stopped=True).reason is EndReason.STOPPED


def test_evicted_pod_counts_as_killed() -> None:
    document = pod("running")
    document["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
    }
    status = node_status(document)
    assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.KILLED)
    assert status.message == "Evicted: The node was low on resource: memory."


def test_newer_clusters_say_why_a_pod_goes() -> None:
    document = pod("leaving")
    document["status"]["conditions"].append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
        }
    )
    assert node_status(document).message.startswith("PreemptionByScheduler: default-scheduler")
    assert node_status(document).phase is NodePhase.LEAVING


def test_pod_of_lost_machine_counts_as_killed() -> None:
    document = pod("leaving")
    assert leaving(document)
    assert grace_seconds(document) == 5
    assert lost(document, stopped=False).reason is EndReason.KILLED
    assert lost(document, stopped=False).message == "node-0 does not answer any more"


def with_ready(document: dict[str, Any], status: str, reason: str | None = None) -> dict[str, Any]:
    for condition in document["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition |= {"status": status, **({"reason": reason} if reason else {})}
    return document


def test_pod_that_is_not_ready_is_on_an_unreachable_machine() -> None:
    assert not unreachable(pod("running"))
    assert unreachable(with_ready(pod("running"), "False"))


def test_a_pod_that_waits_for_its_readiness_gate_is_at_work() -> None:
    waits = with_ready(pod("running"), "False", "ReadinessGatesNotReady")
    waits["spec"]["readinessGates"] = [{"conditionType": "target-health.elbv2.k8s.aws/group"}]
    assert not unreachable(waits)
    assert node_status(waits).message == ""


@pytest.mark.parametrize("where", ["containerStatuses", "initContainerStatuses"])
def test_a_container_beside_ours_that_is_not_ready_says_nothing_of_the_machine(where: str) -> None:
    """Since Kubernetes 1.28, one that is to run beside ours may be among those that come before it."""
    document = pod("running")
    for condition in document["status"]["conditions"]:
        if condition["type"] in ("Ready", "ContainersReady"):
            condition |= {"status": "False", "reason": "ContainersNotReady"}
    proxy = {"name": "istio-proxy", "ready": False, "started": True, "state": {"running": {}}}
    document["status"].setdefault(where, []).insert(0, proxy)
    assert not unreachable(document)
    assert node_status(document).message == ""


def test_ended_sidecar_container_does_not_end_the_node() -> None:
    document = pod("running")
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    document["status"]["containerStatuses"].insert(0, {"name": "collector", "ready": False, "state": ended})
    assert node_status(document).phase is NodePhase.RUNNING


def after_another(document: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Returns the pod with an init container that an admission webhook has injected."""
    document["status"]["initContainerStatuses"] = [
        {"name": "done", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "istio-init", "state": state},
    ]
    waiting = {"waiting": {"reason": "PodInitializing"}}
    document["status"]["containerStatuses"] = [{"name": "worker", "state": waiting, "ready": False}]
    return document


def test_a_container_before_ours_that_fails() -> None:
    failed = {"terminated": {"exitCode": 2, "reason": "Error", "message": "no iptables\n"}}
    document = after_another(pod("scheduled"), failed)
    document["status"]["phase"] = "Failed"
    status = node_status(document)
    assert (status.phase, status.reason, status.exit_code) == (NodePhase.FAILED, EndReason.KILLED, None)
    assert status.message == "its container istio-init has failed: exit code 2; last output: no iptables"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"running": {}}, ""),
        ({"waiting": {"reason": "PodInitializing"}}, ""),
        (
            {"waiting": {"reason": "ErrImagePull", "message": "unauthorized"}},
            "its container istio-init: ErrImagePull: unauthorized",
        ),
    ],
)
def test_waiting_init_container_is_reported(state: dict[str, Any], message: str) -> None:
    document = after_another(pod("scheduled"), state)
    assert (node_status(document).phase, node_status(document).message) == (NodePhase.PENDING, message)
    # Then its events have nothing to add.
    assert on_its_way(document) == (not message)
