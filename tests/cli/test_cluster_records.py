"""What a job's record and its master's pod say together about the job's state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.catalog.kubernetes.observed_job import is_running, state_of


def record(**status: Any) -> dict[str, Any]:
    return {"metadata": {}, "data": {"status.json": json.dumps(status)} if status else {}}


def master(phase: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "status": {"phase": phase}}


def not_ready(*, containers: str) -> dict[str, Any]:
    pod = master("Running")
    pod["status"] |= {
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": containers},
        ],
        "containerStatuses": [{"ready": True, "state": {"running": {"startedAt": "2026-11-16T05:35:15Z"}}}],
    }
    return pod


def lost() -> dict[str, Any]:
    """Its machine does not answer: the pod is not ready by the cluster's word, its container by the machine's last."""
    return not_ready(containers="True")


def test_a_master_beside_a_container_that_is_not_ready_is_there() -> None:
    assert state_of(record(state="running"), not_ready(containers="False")) == "running"


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_master_that_has_said_nothing_yet(phase: str) -> None:
    assert state_of(record(), master(phase)) == "starting"
    assert is_running("starting")


def test_the_masters_word_counts_while_it_runs() -> None:
    assert state_of(record(state="stopping"), master("Running")) == "stopping"


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped"])
def test_the_last_word_counts_when_the_pods_are_gone(state: str) -> None:
    assert state_of(record(state=state), None) == state
    assert not is_running(state)


@pytest.mark.parametrize(
    "gone",
    [
        None,
        master("Running", deletionTimestamp="2026-01-01T00:00:00Z"),
        master("Failed"),
        master("Succeeded"),
        lost(),
    ],
)
def test_a_job_without_a_master_that_is_not_over_is_interrupted(gone: dict[str, Any] | None) -> None:
    assert state_of(record(state="running"), gone) == "interrupted"
    assert not is_running("interrupted")
