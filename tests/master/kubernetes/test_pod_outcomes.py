"""A job in a pod ends as it ends, whatever the API server says to what its master writes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_record import MASTER_KEY
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.master.job_state import JobState
from elasticdl.master.journal import Journal
from elasticdl.master.kubernetes import pod_master
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.kubernetes.client import ClusterError
from tests.master.fake_time import FakeTime
from tests.master.kubernetes.test_job_record_sync import NAME, FakeCluster

SPEC = JobSpec.build(job_name=NAME.removeprefix("elasticdl-"), image_name="i", job_command="x", num_workers=2)


class Refusing(FakeCluster):
    """Says to a master that the record is its own, and then takes no write of it."""

    namespace = "ours"

    def __init__(self, status: int) -> None:
        super().__init__()
        self.data["spec.yaml"] = to_yaml(SPEC)
        self.refused = 0
        self.status_code = status

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        return {"spec": {"clusterIP": "10.0.0.1"}} if kind == "Service" else await super().get(kind, name)

    async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        if [*changes["data"]] == [MASTER_KEY]:
            return await super().patch(kind, name, changes)
        self.refused += 1
        raise ClusterError("refused", status=self.status_code, reason="")


class NoServers:
    own = public = None

    def __init__(self, *_: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: Any) -> Path:
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("ELASTICDL_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("ELASTICDL_POD_UID", "me")
    monkeypatch.setattr(pod_master, "Servers", NoServers)
    monkeypatch.setattr(pod_master, "add_port", lambda *_, **__: 0)
    monkeypatch.setattr(pod_master, "KubernetesPlatform", lambda *_, **__: nowhere)
    return tmp_path


def run(cluster: Refusing, folder: Path, *, terminated: bool = False) -> int:
    async def begin() -> int:
        away = asyncio.Event()
        if terminated:
            away.set()
        return await pod_master.run(cluster, SPEC.job_name, folder, away)  # type: ignore[arg-type]

    loop = FakeTime()
    try:
        return loop.run_until_complete(begin())
    finally:
        loop.close()


def ended(folder: Path, outcome: str) -> None:
    state = JobState(JobSettings.of(SPEC))
    state.ending.finish(outcome)
    with Journal(folder / "journal") as journal:
        journal.compact(state.snapshot())


@pytest.mark.parametrize("status", [403, 413, 422])
@pytest.mark.parametrize("outcome", ["succeeded", "stopped"])
def test_a_job_that_has_come_to_its_end(folder: Path, outcome: str, status: int) -> None:
    ended(folder, outcome)
    cluster = Refusing(status)
    assert run(cluster, folder) == pod_master.EXIT_DONE
    assert cluster.refused
    assert "status.json" not in cluster.data


@pytest.mark.parametrize("status", [403, 413, 422])
def test_terminated_master(folder: Path, status: int) -> None:
    cluster = Refusing(status)
    assert run(cluster, folder, terminated=True) == pod_master.EXIT_TERMINATED
    assert cluster.refused
    assert "status.json" not in cluster.data


def test_missing_right_to_list_pods_ends_master_before_first_status(
    folder: Path, nowhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission waits for that, and shows how the container has ended instead."""

    async def nodes() -> list[Any]:
        raise ClusterError("cannot list pods", status=403, reason="Forbidden")

    monkeypatch.setattr(nowhere, "nodes", nodes)
    cluster = Refusing(413)
    assert run(cluster, folder) == pod_master.EXIT_AGAIN
    assert not cluster.refused


class Taken(Refusing):
    """Another master claims the record as soon as this one has."""

    async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
        record = await FakeCluster.patch(self, kind, name, changes)
        self.data[MASTER_KEY] = "another"
        self.version += 1
        return record


@pytest.mark.parametrize("outcome", ["", "succeeded", "failed"])
def test_replaced_master_writes_no_final_status(folder: Path, outcome: str) -> None:
    if outcome:
        ended(folder, outcome)
    cluster = Taken(0)
    assert run(cluster, folder, terminated=True) == pod_master.EXIT_TERMINATED
    assert [[*data] for _, data in cluster.patches] == [[MASTER_KEY]]
