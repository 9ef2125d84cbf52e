"""A job in pods begins with its nodes: everything else its master does when they have been asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_record import MASTER_KEY
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.master.journal import Journal
from elasticdl.master.kubernetes import pod_master
from elasticdl.platforms.platform import NodePhase, NodeRequest, NodeStatus
from tests.master.conftest import Nowhere
from tests.master.fake_time import FakeTime
from tests.master.kubernetes.test_job_record_sync import NAME, FakeCluster

SPEC = JobSpec.build(job_name=NAME.removeprefix("elasticdl-"), image_name="i", job_command="x")
WORKER = NodeStatus(name="worker-0", role="worker", phase=NodePhase.RUNNING)


class Watched(FakeCluster):
    namespace = "ours"

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self.data["spec.yaml"] = to_yaml(SPEC)
        self._steps = steps
        self.service_is_gone = False

    async def get(self, kind: str, name: str) -> Any:
        if kind == "Service":
            return None if self.service_is_gone else {"spec": {"clusterIP": "10.0.0.1"}}
        return await super().get(kind, name)

    async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        if "status.json" in changes["data"]:
            self._steps.append("status")
        elif MASTER_KEY in changes["data"]:
            self._steps.append("claimed")
        return await super().patch(kind, name, changes)


class Slow(Nowhere):
    """Takes a minute to make a node."""

    def __init__(self, steps: list[str], there: list[NodeStatus]) -> None:
        super().__init__()
        self._steps = steps
        self._there = there

    async def nodes(self) -> list[NodeStatus]:
        return self._there

    async def start(self, request: NodeRequest) -> None:
        await asyncio.sleep(60.0)
        self._steps.append(request.name)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    steps: list[str] = []

    class Servers:
        own = public = None

        def __init__(self, *_: Any) -> None: ...

        async def start(self) -> None:
            steps.append("listens")

        async def stop(self) -> None: ...

    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("ELASTICDL_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("ELASTICDL_POD_UID", "me")
    monkeypatch.setattr(pod_master, "Servers", Servers)
    monkeypatch.setattr(pod_master, "add_port", lambda *_, **__: 0)
    return steps


def run(cluster: FakeCluster, platform: Slow, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """For five minutes, or until it ends."""

    async def begin() -> int:
        away = asyncio.Event()
        asyncio.get_running_loop().call_later(300.0, away.set)
        return await pod_master.run(cluster, SPEC.job_name, folder, away)  # type: ignore[arg-type]

    monkeypatch.setattr(pod_master, "KubernetesPlatform", lambda *_, **__: platform)
    loop = FakeTime()
    try:
        return loop.run_until_complete(begin())
    finally:
        loop.close()


def test_nodes_come_first(steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(Watched(steps), Slow(steps, []), tmp_path, monkeypatch) == pod_master.EXIT_TERMINATED
    assert steps[:4] == ["claimed", "worker-0", "listens", "status"]


def test_restarted_master_with_nodes_listens_first(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that comes back is called by them."""
    assert run(Watched(steps), Slow(steps, [WORKER]), tmp_path, monkeypatch) == pod_master.EXIT_TERMINATED
    assert steps[:3] == ["claimed", "listens", "status"]


def test_job_that_cannot_start_releases_its_journal(
    steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Watched(steps)
    cluster.service_is_gone = True
    monkeypatch.setattr(pod_master, "_fail_for_good", _at_once)
    assert run(cluster, Slow(steps, []), tmp_path, monkeypatch) == pod_master.EXIT_FAILED
    assert steps == ["claimed", "status"]
    Journal(tmp_path / "journal").close()


async def _at_once(*_: Any) -> None: ...
