"""Nodes that know each other by TF_CONFIG: a parameter server and a worker are lost, and the other nodes find their
replacements at the same addresses.
"""

from __future__ import annotations

import json
from typing import Any

from e2e.kubernetes.held import NAME, HeldJob


def test_replacements_of_server_and_worker_keep_their_addresses(held: HeldJob) -> None:
    held.limit(3)
    held.start_program(
        "--job_command=python3 /held/zoo/held/peers.py",
        "--need_tf_config=true",
        "--num_ps=1",
        "--num_workers=2",
    )
    held.wait_for_held(3, "worker-0", "worker-1")
    config = said(held, "worker-0", "config")
    server, (lost, other) = config["cluster"]["ps"][0], config["cluster"]["worker"]
    assert config["task"] == {"type": "worker", "index": 0}
    assert said(held, "worker-1", "batch 3") == {server: "ps-0", lost: "worker-0"}

    for node in ("ps-0", "worker-0"):
        held.kubectl("delete", "pod", pod_of(node), "--grace-period=1", "--wait=false")
    held.wait_for_running("ps-1", "worker-2")
    held.limit(6)
    held.wait_for_held(6, "worker-1", "worker-2")
    assert said(held, "worker-1", "batch 6") == {server: "ps-1", lost: "worker-2"}
    assert said(held, "worker-2", "config") == config
    assert said(held, "worker-2", "batch 6") == {server: "ps-1", other: "worker-1"}
    # The batch that the lost worker had begun: the program's own server may have it.
    assert held.ends_exactly() == [10, 0]


def pod_of(node: str) -> str:
    return f"{NAME}-edljob-{node}"


def said(held: HeldJob, node: str, about: str) -> dict[str, Any]:
    (line,) = (
        line for line in held.kubectl("logs", pod_of(node)).splitlines() if line.startswith(f"{about} ")
    )
    return dict(json.loads(line.removeprefix(f"{about} ")))
