"""Masters that their machines do not start: what their events say is reported, a few requests each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.controller.stuck_masters import StuckMasters
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import MASTER, NAMESPACE, ApiServer
from tests.platforms.kubernetes.scripted_server import play, refusal

WORDS = 'MountVolume.SetUp failed: configmap "data" not found'
EVENT = {
    "kind": "Event",
    "metadata": {"name": "one"},
    "reason": "FailedMount",
    "message": WORDS,
    "type": "Warning",
    "lastTimestamp": "2026-11-16T05:35:09Z",
}


def master(phase: str) -> dict[str, Any]:
    metadata = {"name": MASTER, "namespace": NAMESPACE, "uid": "of-master"}
    return {"metadata": metadata, "spec": {"nodeName": "m0"}, "status": {"phase": phase}}


async def observe(cluster: Cluster, *phases: str) -> list[str]:
    """Returns what is reported of a master that is seen in these phases."""
    found: list[str] = []
    stuck = StuckMasters(cluster, on_trouble=lambda pod, words: found.append(words), look_after=(0.0, 0.0))
    before = asyncio.all_tasks()
    for phase in phases:
        stuck.observe(master(phase), gone=False)
    await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    stuck.close()
    return found


@pytest.fixture
def observed(api: ApiServer, tmp_path: Path) -> Callable[..., list[str]]:
    path = api.kubeconfig(tmp_path / "config")

    async def work(*phases: str) -> list[str]:
        async with Cluster(find_access(environment={"KUBECONFIG": str(path)}), patience=1.0) as cluster:
            return await observe(cluster, *phases)

    return lambda *phases: asyncio.run(work(*phases))


def test_events_of_a_master_that_does_not_start_are_reported(
    api: ApiServer, observed: Callable[..., list[str]]
) -> None:
    api.put("events", EVENT)
    assert observed("Pending", "Pending") == [f"FailedMount: {WORDS}"] * 2


def test_events_of_a_master_that_runs_are_not_asked_for(
    api: ApiServer, observed: Callable[..., list[str]]
) -> None:
    api.put("events", EVENT)
    assert observed("Pending", "Running") == []
    assert not [kind for _, kind, _ in api.asked if kind == "events"]


def test_missing_right_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    words = 'events is forbidden: User "edl" cannot list resource "events"'

    async def scenario(cluster: Cluster) -> None:
        assert await observe(cluster, "Pending") == []

    with caplog.at_level(logging.WARNING, logger="elasticdl.controller"):
        assert len(play([refusal(403, "Forbidden", words)] * 2, scenario)) == 2
    [line] = [record.getMessage() for record in caplog.records]
    assert f"a role must grant the verb list on events ({words})" in line
