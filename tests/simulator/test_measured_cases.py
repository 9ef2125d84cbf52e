"""The experiments that are measured on a cluster and simulated: both sides mean the same by their figures."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.kubernetes.edl_cases import CASES, Calibration, simulate, utilisation
from benchmarks.kubernetes.place import Seen
from elasticdl.scheduling.cluster import Machine
from elasticdl.simulator.workload import CPU

MACHINES = [Machine(name=f"machine-{number}", allocatable={CPU: 6_000}) for number in range(3)]


def seen(
    seconds: float, phase: str, *, kind: str = "MODIFIED", ended: bool = False, leaving: bool = False
) -> Seen:
    metadata: dict[str, Any] = {"name": "pod", "namespace": "team"}
    if leaving:
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    state: dict[str, Any] = {"terminated": {}} if ended else {"running": {}}
    pod = {
        "metadata": metadata,
        "spec": {"nodeName": "machine-0", "containers": [{"resources": {"requests": {"cpu": "750m"}}}]},
        "status": {"phase": phase, "containerStatuses": [{"state": state}] if phase == "Running" else []},
    }
    return Seen(seconds=seconds, kind=kind, pod=pod)


def test_utilisation_counts_pods_from_running_to_the_end_of_their_containers() -> None:
    changes = [
        seen(0.0, "Pending", kind="ADDED"),
        seen(2.0, "Running"),
        seen(5.0, "Running", leaving=True),
        seen(6.0, "Running", leaving=True, ended=True),
        seen(8.0, "Running", leaving=True, ended=True, kind="DELETED"),
    ]
    assert utilisation(changes, 0.0, 10.0) == pytest.approx(750 * 4.0 / 10.0)


def test_pod_that_runs_on_counts_until_the_end_of_the_experiment() -> None:
    assert utilisation([seen(4.0, "Running")], 0.0, 10.0) == pytest.approx(750 * 6.0 / 10.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jobs_of_the_simulated_case_wait_for_little_more_than_their_start(case: Any) -> None:
    start = 5.0
    found = simulate(case, MACHINES, Calibration(start=start, stop=1.0))
    # Room is made while others drain; two plans may pass.
    assert start <= found.waiting <= start + 3.0
    assert 0.7 < found.utilisation < 1.0
