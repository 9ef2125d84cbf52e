"""JobStatus: what a master writes, any reader reads, and documents of other versions are read or refused."""

from __future__ import annotations

import json

import pytest

from elasticdl.jobs.audit import Audit, AuditRow
from elasticdl.jobs.status import (
    BucketReport,
    CallReport,
    DesiredResult,
    Evaluation,
    HotId,
    JobStatus,
    NodeReport,
    RunState,
    ServerReport,
    Staleness,
    StatusError,
    TableReport,
)

ROW = AuditRow(dataset="training", epoch=0, epochs=2, size=100, done=100, again=0, skipped=0, stopped=False)
STATUS = JobStatus(
    job="job",
    state=RunState.RUNNING,
    kind="train",
    phase="training",
    start_time=1.0,
    samples_done=100,
    samples_desired=200,
    losses=((10, 0.5), (20, 0.25)),
    loss=0.25,
    evaluations=(Evaluation(step=10, epoch=0, metrics={"auc": 0.5}),),
    nodes=(
        NodeReport(name="worker-0", role="worker", phase="running", has_joined=True, leased_shards=2),
        NodeReport(name="worker-1", role="worker", phase="running", has_joined=True, is_draining=True),
        NodeReport(name="worker-2", role="worker", phase="pending"),
    ),
    desired_nodes={"worker": 2, "ps": 1},
    observed_generation=4,
    desired_result=DesiredResult(message="from 3 to 2 workers", ignored_victims={"worker-9": "no such node"}),
    buckets=BucketReport(map_version=2, by_server={"ps-0": 256}),
    servers=(
        ServerReport(
            name="ps-0",
            size_bytes=12,
            push=CallReport(count=3, p95_seconds=0.5),
            calls={"push": CallReport(count=3, p95_seconds=0.5)},
            staleness=Staleness(mean=0.5, max=2),
            tables=(TableReport(name="t", rows=3, hot_ids=(HotId(id=7, share=0.5),)),),
        ),
    ),
    audit=Audit(rows=(ROW,), skipped=(), exact=False, reason="epoch 2 has not begun on training"),
)


def test_status_written_as_text_reads_back_equal() -> None:
    assert JobStatus.from_text(STATUS.to_text()) == STATUS


def test_status_keeps_the_keys_of_the_wire() -> None:
    document = STATUS.to_json()
    assert document["version"] == 1
    assert document["samples_total"] == 200
    assert document["targets"] == {"worker": 2, "ps": 1}
    assert document["observedGeneration"] == 4
    assert document["nodes"][1]["draining"] is True
    assert document["servers"][0]["tables"][0]["hot"] == [{"id": 7, "share": 0.5}]
    assert document["audit"]["rows"] == [vars(ROW)]


def test_status_without_audit_has_no_key_for_it() -> None:
    document = JobStatus(job="job").to_json()
    assert "audit" not in document
    assert document["buckets"] == {}
    assert JobStatus.from_json(document) == JobStatus(job="job")


def test_status_of_a_master_before_its_start_has_no_report() -> None:
    status = JobStatus.from_json({"job": "job", "state": "failed", "message": "no room"})
    assert not status.has_report
    assert (status.state, status.message) == (RunState.FAILED, "no room")
    assert STATUS.has_report


def test_status_without_version_is_read_and_unknown_keys_are_ignored() -> None:
    document = {"job": "job", "state": "running", "wish": {"id": "a"}, "targets": {"worker": 1}}
    assert JobStatus.from_json(document).desired_nodes == {"worker": 1}


def test_status_of_a_newer_version_is_refused_with_both_versions() -> None:
    with pytest.raises(StatusError, match="status has version 2, and this elasticdl reads versions up to 1"):
        JobStatus.from_json({**STATUS.to_json(), "version": 2})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ('{"state": "dancing"}', "state: 'dancing' is not one of starting"),
        ('{"nodes": [{"name": "a", "role": "b"}]}', r"nodes\[0\]: phase is missing"),
        ('{"audit": {"rows": [{}], "exact": true, "reason": ""}}', r"audit.rows\[0\].dataset"),
    ],
)
def test_damaged_status_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(StatusError, match=problem):
        JobStatus.from_text(text)


def test_non_finite_loss_survives_json() -> None:
    loss = JobStatus.from_text(JobStatus(job="job", loss=float("nan")).to_text()).loss
    assert loss is not None
    assert loss != loss


def test_ready_nodes_are_joined_and_not_draining() -> None:
    assert STATUS.ready_nodes("worker") == 1


def test_status_without_tables_keeps_the_servers() -> None:
    (server,) = STATUS.without_tables().servers
    assert (server.name, server.tables) == ("ps-0", ())


def test_states_are_final_or_active_or_interrupted() -> None:
    assert [state for state in RunState if state.is_final] == ["succeeded", "failed", "stopped"]
    assert [state for state in RunState if state.is_active] == ["starting", "running", "stopping"]
    assert f"{RunState.FAILED}" == "failed" == json.loads(json.dumps(RunState.FAILED))
