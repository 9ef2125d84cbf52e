"""What a master's pod makes of what keeps it from its work: which of it ends the job, and what it says last."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_record import MASTER_KEY
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.master.journal import Holder, Journal, JournalTaken
from elasticdl.master.kubernetes import pod_master
from elasticdl.master.kubernetes.record_writer import RecordWriter
from elasticdl.platforms.kubernetes.client import ClusterError
from tests.master.fake_time import FakeTime

JOB = "j"
SPEC = JobSpec.build(job_name=JOB, image_name="i", job_command="x")
FORBIDDEN = ClusterError(
    'configmaps "elasticdl-j" is forbidden: User "system:serviceaccount:ours:elasticdl" cannot get resource '
    '"configmaps" in API group "" in the namespace "ours"',
    status=403,
    reason="Forbidden",
)


class FakeCluster:
    """The record and the pod of one master."""

    namespace = "ours"
    now = None

    def __init__(self) -> None:
        self.data = {"spec.yaml": to_yaml(SPEC), MASTER_KEY: "new"}
        self.uid = "new"
        self.deadline: dict[str, Any] = {}
        self.cannot_get: ClusterError | None = None
        self.cannot_patch: ClusterError | None = None

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        if self.cannot_get:
            raise self.cannot_get
        if kind == "Pod":
            return {"metadata": {"name": name, "uid": self.uid}}
        metadata = {"name": name, "uid": "12345678", "resourceVersion": "1"}
        return {"metadata": metadata, "data": dict(self.data)}

    async def patch(self, kind: str, name: str, changes: dict[str, Any]) -> dict[str, Any] | None:
        if self.cannot_patch and MASTER_KEY not in changes.get("data", {}):
            raise self.cannot_patch
        if kind == "Pod":
            self.deadline = changes
        else:
            self.data |= changes["data"]
        return await self.get(kind, name)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.data.get("status.json", "{}")))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setenv("ELASTICDL_POD_UID", "new")
    return FakeCluster()


def in_fake_time(work: Any) -> Any:
    loop = FakeTime()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def run(cluster: FakeCluster, folder: Path) -> int:
    async def begin() -> int:
        return await pod_master.run(cluster, JOB, folder, asyncio.Event())  # type: ignore[arg-type]

    return int(in_fake_time(begin()))


def raising(error: Exception) -> Any:
    async def serve(*_: Any) -> int:
        raise error

    return serve


def test_an_account_without_rights(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.cannot_get = cluster.cannot_patch = FORBIDDEN
    assert run(cluster, tmp_path) == pod_master.EXIT_FAILED
    said = capsys.readouterr().err
    assert 'cannot get resource "configmaps"' in said
    assert (
        "kubectl apply --namespace=ours -f elasticdl/manifests/elasticdl-rbac.yaml" in said.splitlines()[-1]
    )
    assert "Traceback" not in said


def test_unreportable_failure_has_the_same_exit_code(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_master, "_serve", raising(UserError("the disk is full")))
    cluster.cannot_patch = FORBIDDEN
    assert run(cluster, tmp_path) == pod_master.EXIT_FAILED


def test_failure_is_reported_in_the_record(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_master, "_serve", raising(UserError("the disk is full")))
    assert run(cluster, tmp_path) == pod_master.EXIT_FAILED
    assert cluster.status()["state"] == "failed"
    # Of this very pod.
    assert cluster.deadline == {"metadata": {"uid": "new"}, "spec": {"activeDeadlineSeconds": 1}}


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_by_api_server_restarts_master_without_ending_job(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """By an API server that has just started, as a rule."""
    monkeypatch.setattr(pod_master, "_serve", raising(ClusterError("no right", status=status, reason="")))
    assert run(cluster, tmp_path) == pod_master.EXIT_AGAIN
    assert "status.json" not in cluster.data
    assert not cluster.deadline


def test_a_master_that_was_replaced_does_not_speak_for_the_job(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_master, "_serve", raising(UserError("the journal is gone")))
    cluster.uid = "another"
    assert run(cluster, tmp_path) == pod_master.EXIT_AGAIN
    assert "status.json" not in cluster.data
    assert not cluster.deadline


def test_a_taken_journal_is_no_end(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_master, "_serve", raising(JournalTaken("Another master has it.")))
    assert run(cluster, tmp_path) == pod_master.EXIT_AGAIN
    assert "status.json" not in cluster.data
    assert not cluster.deadline


# -- its turn ------------------------------------------------------------------------------------------------


def in_turn(
    cluster: FakeCluster, folder: Path, terminated: asyncio.Event | None = None
) -> tuple[Journal, float]:
    """The journal, and the seconds it took to get it."""

    async def wait() -> tuple[Journal, float]:
        away = terminated or asyncio.Event()
        writer = RecordWriter(cluster, JOB, uid="new")  # type: ignore[arg-type]
        journal = await pod_master._in_turn(cluster, writer, folder, away)  # type: ignore[arg-type]
        return journal, asyncio.get_running_loop().time()

    found: tuple[Journal, float] = in_fake_time(wait())
    return found


def other(uid: str) -> Holder:
    return Holder(pod="elasticdl-j-master", uid=uid, since=0.0)


def test_the_journal_of_a_pod_that_is_gone_is_taken_over(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.data["status.json"] = json.dumps({"state": "running", "epoch": 3})
    lost = Journal(tmp_path, holder=other("lost"))
    journal, seconds = in_turn(cluster, tmp_path)
    with journal:
        assert 60 <= seconds < 70
        # Said while it waited, beside what was known of the job.
        said = cluster.status()
        assert (said["state"], said["epoch"], said["phase"]) == ("running", 3, "waiting for the journal")
        assert "(uid lost), since 1970-01-01" in said["message"]
    lost.close()


def test_undecidable_handover_is_left_to_the_next_container(cluster: FakeCluster, tmp_path: Path) -> None:
    # It does not say who it is.
    with Journal(tmp_path), pytest.raises(JournalTaken):
        in_turn(cluster, tmp_path)
    assert cluster.status()["state"] == "starting"


def test_a_pod_that_cannot_find_out_whether_it_is_the_master_takes_nothing(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.uid = "another"
    with Journal(tmp_path, holder=other("lost")), pytest.raises(JournalTaken):
        in_turn(cluster, tmp_path)


def test_a_free_one_is_taken_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    Journal(tmp_path, holder=other("lost")).close()
    journal, seconds = in_turn(cluster, tmp_path)
    journal.close()
    assert seconds == 0.0
    assert "status.json" not in cluster.data
