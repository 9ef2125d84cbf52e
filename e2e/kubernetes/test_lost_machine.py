"""Machines are lost, as by a power cut: what ran there is replaced elsewhere, and the job comes to an exact end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.cluster.places import Cluster
from e2e.conftest import wait_until
from e2e.kubernetes.held import MASTER, NAME, HeldJob
from e2e.kubernetes.test_master_gone import goes_on_exactly, to_the_first_shard

# Of digits.
SIZE = 1437


def only_on(*machines: str, apart: dict[str, str] | None = None) -> dict[str, Any]:
    """No two pods with the labels `apart` are on one of them."""
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(machines)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [place]}]}
    affinity: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if apart:
        others = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": apart}}]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": others}
    return {"affinity": affinity}


def machine_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["nodeName"])


def test_machine_of_master_is_lost_with_journal_on_a_volume(
    cluster: Cluster, three_machines: list[str], shared_folder: Path, held: HeldJob
) -> None:
    """On a volume that every machine has: nothing is forgotten, and nothing trained again."""
    spare, here, there = three_machines
    fields = {"master_spec": only_on(here, spare), "worker_spec": only_on(there)}
    shared_folder.chmod(0o777)
    held.kubectl("cordon", spare)
    try:
        before = to_the_first_shard(
            held,
            "--journal_dir=/journals",
            f"--cluster_spec_json={json.dumps(fields)}",
            volumes=f"host_path={shared_folder},mount_path=/journals",
        )
    finally:
        held.kubectl("uncordon", spare)
    cluster.stop_node(here)
    try:
        wait_until_missed(held, here)
        held.limit(6)
        held.resume()
        goes_on_exactly(held, before, said="Continuing from the journal")
    finally:
        cluster.start_node(here)


def wait_until_missed(held: HeldJob, machine: str) -> None:
    """The master's: long before the cluster gives up its pod."""
    wait_until(
        lambda: f"{machine}, its machine, does not answer" in held.elasticdl.jobs("status", NAME),
        "the master's machine has been unresponsive for a while",
    )


def test_machines_of_server_worker_and_then_master_are_lost(
    cluster: Cluster, three_machines: list[str], held: HeldJob, digits: Path
) -> None:
    spare, here, there = three_machines
    fields = {
        "master_spec": only_on(here, spare),
        "ps_spec": only_on(there, spare),
        "worker_spec": only_on(here, there, spare, apart={"elasticdl-replica-type": "worker"}),
    }
    held.limit(2)
    held.kubectl("cordon", spare)
    try:
        held.start_model(
            digits,
            "--num_epochs=2",
            "--minibatch_size=32",
            "--num_minibatches_per_task=4",
            "--num_ps=1",
            "--num_workers=2",
            f"--cluster_spec_json={json.dumps(fields)}",
        )
        held.wait_for_held(2, "worker-0", "worker-1")
    finally:
        held.kubectl("uncordon", spare)
    assert machine_of(held.pods("ps")["ps-0"]) == there
    assert machine_of(held.kubectl.get("pod", MASTER)) == here
    (left,) = (name for name, pod in held.pods().items() if machine_of(pod) == here)

    cluster.stop_node(there)
    try:
        held.wait_for_running("ps-1", "worker-2", left)
        assert there not in {machine_of(pod) for role in ("ps", "worker") for pod in held.pods(role).values()}
        held.limit(4)
        held.wait_for_held(4, left)
    finally:
        cluster.start_node(there)

    cluster.stop_node(here)
    try:
        wait_until_missed(held, here)
        held.resume()
        # The model went with the server, and there was no checkpoint yet.
        assert held.ends_exactly(epochs=2, size=SIZE)[0] > 0
    finally:
        cluster.start_node(here)
