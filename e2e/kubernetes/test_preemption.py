"""A Deployment of a higher priority takes the place of workers: the job goes on with the one that is left, waits with
the others, and has them all back when there is room again.

They compete for an extended resource of this test, on one machine: no other pods are in the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.devices import offered
from e2e.kubernetes.held import HeldJob

SLOT = "elasticdl.test/slot"
# Two more than there are workers, and three fewer than all want.
ROOM, WORKERS, REPLICAS = 6, 4, 5


@pytest.fixture
def slots(kubectl: Kubectl) -> Iterator[None]:
    with offered(kubectl, SLOT, ROOM):
        yield


def service(replicas: int, needs: Mapping[str, str]) -> dict[str, Any]:
    """A Deployment of a high priority. `needs`: what each of its pods requests."""
    container = {
        "name": "main",
        "image": "elasticdl-test:light",
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "resources": {"limits": needs},
    }
    pod = {"priorityClassName": "high", "terminationGracePeriodSeconds": 1, "containers": [container]}
    labels = {"service": "busy"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "busy"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@pytest.mark.usefixtures("slots")
def test_three_of_four_preempted_workers_leave_job_running(held: HeldJob) -> None:
    first = [f"worker-{number}" for number in range(WORKERS)]
    later = [f"worker-{number}" for number in range(WORKERS, WORKERS + 3)]
    held.limit(3)
    held.start_program(
        f"--num_workers={WORKERS}", "--worker_pod_priority=low", f"--worker_resource_request={SLOT}=1"
    )
    held.wait_for_held(3, *first)

    held.kubectl("create", "--filename=-", text=json.dumps(service(REPLICAS, {SLOT: "1"})))

    def left() -> set[str]:
        staying = held.pods().keys() & {*first}
        for node in {*first} - staying:
            # It has had notice, and may end by itself.
            held.limit(1000, node)
        return staying

    wait_until(lambda: len(left()) == 1, "three are preempted")
    (one,) = left()
    wait_until(lambda: {*held.pods()} == {one, *later}, "each has a replacement")
    held.kubectl("rollout", "status", "deployment/busy", "--timeout=300s")
    wait_until(
        lambda: all(held.messages().get(node, "").startswith("Unschedulable: 0/") for node in later),
        "the status says why those wait",
    )
    held.limit(6)
    held.wait_for_held(6, one)
    phases = {node: pod["status"]["phase"] for node, pod in held.pods().items()}
    assert phases == {one: "Running", **dict.fromkeys(later, "Pending")}

    held.kubectl("scale", "deployment/busy", "--replicas=1")
    held.wait_for_held(6, *later)
    held.kubectl("delete", "deployment", "busy", "--wait=false")
    assert held.ends_exactly() == [0, 0]
