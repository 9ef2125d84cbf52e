"""A model definition trains with parameter servers, and is held in the middle of it. One thing after another happens to
the job: it is looked at, strangers knock, a worker has to go, a server has to go, servers are added. It ends exactly,
and nothing is trained again.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.nodes import NODE_IP
from e2e.cluster.places import Cluster
from e2e.cluster.policies import heeded
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.held import MASTER, NAME, HeldJob

# Of digits.
SIZE = 1437
BATCH = 32
# Of the one table, in e2e/zoo/held/keras_model.py.
ROWS = 17
# At all of the addresses at once. A connection is made by the kernels alone, however busy the programs are.
_KNOCK = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor

def knock(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except TimeoutError:
        return "kept out"
    except ConnectionRefusedError:
        pass
    return "let in"

with ThreadPoolExecutor() as pool:
    print(*set(pool.map(knock, sys.argv[1:])), sep=" and ")
"""


@pytest.fixture
def running(held: HeldJob, digits: Path) -> HeldJob:
    """Two workers, each in the middle of its third batch."""
    held.limit(2)
    held.limit(0, "worker-2")
    held.start_model(
        digits,
        "--num_epochs=1",
        f"--minibatch_size={BATCH}",
        "--num_minibatches_per_task=4",
        "--num_ps=2",
        "--num_workers=2",
        # However slow the machine is.
        '--cluster_spec_json={"worker_spec": {"terminationGracePeriodSeconds": 600}}',
    )
    held.wait_for_held(2, "worker-0", "worker-1")
    return held


@pytest.fixture
def stranger(kubectl: Kubectl) -> Iterator[str]:
    """A pod of the same namespace that looks like one of another job."""
    labels = {"app": "elasticdl", "elasticdl-job-name": "other", "elasticdl-replica-type": "worker"}
    container = {"name": "main", "image": "elasticdl-test:light", "imagePullPolicy": "Never"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "labels": labels},
        "spec": {"containers": [{**container, "command": ["sleep", "infinity"]}]},
    }
    kubectl("create", "--filename=-", text=json.dumps(pod))
    kubectl.wait_for_phase("stranger", "Running")
    yield "stranger"
    kubectl("delete", "pod", "stranger", "--grace-period=1", "--wait=false")


def test_job_survives_lost_worker_lost_server_and_scaling(
    cluster: Cluster, running: HeldJob, stranger: str
) -> None:
    servers_are_seen(running)
    with policies_heeded(cluster, running, stranger):
        a_worker_goes(running)
        a_server_goes(running)
        a_server_comes(running)
        assert running.ends_exactly(epochs=1, size=SIZE) == [0]


@contextlib.contextmanager
def policies_heeded(cluster: Cluster, held: HeldJob, stranger: str) -> Iterator[None]:
    """Only pods of the job are let in, those of the block too. What other clusters' networks do is their own affair."""
    if not isinstance(cluster, SelfMade):
        yield
        return
    assert knock(held, stranger) == "let in"
    with heeded(lambda: (held.kubectl.list("pods"), held.kubectl.list("networkpolicies"))):
        assert knock(held, stranger) == "kept out"
        assert knock(held, pod_of("worker-1")) == "let in"
        # Nor do they get out, but to the batch server, and the master to the API server.
        address = held.kubectl.get("pod", stranger)["status"]["podIP"]
        api_server = f"{NODE_IP}:6443"
        assert knock_at(held, pod_of("worker-1"), f"{address}:22", api_server) == "kept out"
        assert knock_at(held, pod_of("worker-1"), held.batch_server.address) == "let in"
        assert knock_at(held, MASTER, api_server) == "let in"
        yield


def servers_are_seen(held: HeldJob) -> None:
    """From outside: what each has, and what it has done."""

    def pushes() -> list[int]:
        return [server["push"]["count"] for server in held.status()["servers"]]

    wait_until(lambda: pushes() == [4, 4], "both servers tell of two batches of each worker")
    shown = held.elasticdl.jobs("status", NAME)
    metrics = held.elasticdl.jobs("metrics", NAME)
    for server in ("ps-0", "ps-1"):
        assert re.search(
            rf"^{server}: {ROWS} rows \| .* pushes/s \| .* p95 pull .*, push ", shown, re.MULTILINE
        )
        assert re.search(rf"^{server}/shades: {ROWS} rows \| ", shown, re.MULTILINE)
        labels = f'job="{NAME}",server="{server}"'
        assert f"elasticdl_server_rows{{{labels}}} {float(ROWS)}\n" in metrics
        assert f'elasticdl_server_call_seconds_count{{call="push",{labels}}} 4.0\n' in metrics
    assert f'elasticdl_nodes{{job="{NAME}",role="worker",state="running"}} 2.0\n' in metrics


def pod_of(node: str) -> str:
    return f"elasticdl-{NAME}-{node}"


def knock(held: HeldJob, pod: str) -> str:
    """How a pod of that name fares at the addresses of the master and of the servers."""
    services = [
        held.kubectl.get("service", name)["spec"] for name in (MASTER, pod_of("ps-0"), pod_of("ps-1"))
    ]
    return knock_at(held, pod, *(f"{spec['clusterIP']}:{spec['ports'][0]['port']}" for spec in services))


def knock_at(held: HeldJob, pod: str, *addresses: str) -> str:
    """A port without a server refuses the connection, and keeps out no more than another."""
    return held.kubectl("exec", pod, "--", "python3", "-c", _KNOCK, *addresses).strip()


def a_worker_goes(held: HeldJob) -> None:
    """It does the batch that it has begun."""
    pod = held.pods()["worker-0"]["metadata"]["name"]
    held.delete_pod("worker-0")
    held.wait_for_notice("worker-0")
    held.limit(1000, "worker-0")
    wait_until(lambda: pod not in held.kubectl.phases(), "it has ended")
    # The others are held still: the third batch was its own, and it reported it.
    held.wait_for_done(5 * BATCH)


def a_server_goes(held: HeldJob) -> None:
    """The other one has all that it had."""
    held.delete_pod("ps-0")
    held.wait_for_running("ps-2")
    held.limit(4)
    held.wait_for_held(4, "worker-1")
    held.wait_for_done(7 * BATCH)

    def rows() -> dict[str, int]:
        return {server["name"]: server["rows"] for server in held.status()["servers"]}

    wait_until(lambda: rows() == {"ps-1": ROWS, "ps-2": ROWS}, "each has every row again")


def a_server_comes(held: HeldJob) -> None:
    assert "from 2 to 3 parameter servers" in held.elasticdl.jobs("scale", NAME, "--num_ps=3")
    held.wait_for_running("ps-3")
    held.limit(6)
    held.wait_for_held(6, "worker-1")
    held.wait_for_done(9 * BATCH)
    wait_until(
        lambda: [server["name"] for server in held.status()["servers"]] == ["ps-2", "ps-1", "ps-3"],
        "all three tell how they do",
    )
