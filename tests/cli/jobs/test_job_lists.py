"""`elasticdl jobs list`: jobs that cannot be read hide no others, and a cluster is asked twice for all of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from elasticdl.catalog.job import JobProgress, JobSummary
from elasticdl.cli.output.job_list import print_jobs
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import Evaluation, JobStatus, RunState
from tests.catalog.api_server import RECORD, RUNNING, ApiServer

HOUR, DAY = 3600, 86_400


@pytest.fixture
def job(api: ApiServer) -> ApiServer:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    return api


def row(shown: str, name: str) -> list[str]:
    return next(line.split() for line in shown.splitlines() if line.startswith(f"{name} "))


def other(api: ApiServer, name: str, **data: str) -> None:
    """A job beside, without a pod."""
    record = api.objects["configmaps", RECORD]
    labels = {**record["metadata"]["labels"], "elasticdl-job-name": name}
    metadata = {"name": f"elasticdl-{name}", "labels": labels}
    api.put("configmaps", {**record, "metadata": metadata, "data": {**record["data"], **data}})


def test_two_requests_for_all(elasticdl: Any, job: ApiServer) -> None:
    for number in range(5):
        other(job, f"job-{number}")
    job.asked.clear()
    shown = elasticdl("jobs", "list").out
    assert row(shown, "job")[:3] == ["job", "train", "running"]
    assert row(shown, "job-4")[:3] == ["job-4", "train", "interrupted"]
    assert sorted(job.asked) == [("GET", "configmaps", ""), ("GET", "pods", "")]


def test_a_job_of_a_newer_version(elasticdl: Any, job: ApiServer) -> None:
    spec = job.objects["configmaps", RECORD]["data"]["spec.yaml"]
    other(job, "newer", **{"spec.yaml": f"{spec}\nfuture:\n  flag: 1\n"})
    assert row(elasticdl("jobs", "list").out, "newer")[:3] == ["newer", "train", "interrupted"]


def test_a_record_that_cannot_be_read(elasticdl: Any, job: ApiServer) -> None:
    other(job, "broken", **{"spec.yaml": "", "status.json": "{"})
    result = elasticdl("jobs", "list")
    assert result.code == 0
    assert row(result.out, "broken")[:3] == ["broken", "?", "?"]
    assert row(result.out, "job")[:3] == ["job", "train", "running"]
    assert "Job broken: What its master has reported (status.json of its record) cannot be read" in result.err
    rows = {entry["job"]: entry for entry in json.loads(elasticdl("jobs", "list", "--json").out)}
    assert "cannot be read" in rows["broken"]["message"]


def test_one_of_this_machine_that_cannot_be_read(elasticdl: Any, api: ApiServer, tmp_path: Path) -> None:
    for name in ("good", "bad"):
        JobStore().create(JobSpec.build(job_name=name, job_command="x"), now=1.0)
    (tmp_path / "home" / "jobs" / "bad" / "record.json").write_text("{")
    result = elasticdl("jobs", "list")
    assert result.code == 0
    assert row(result.out, "bad") == ["bad", "?", "?", "-", "-", "?", "?", "here"]
    assert row(result.out, "good")[:2] == ["good", "train"]
    assert "The record of job bad is damaged" in result.err


def finished(name: str, *, created: float, ended: float | None, kind: str = "train", **status: Any) -> None:
    folder = JobStore().create(JobSpec.build(job_name=name, job_command="x"), now=created)
    if ended is not None:
        folder.finish("succeeded", now=ended)
        folder.status_path.write_text(JobStatus(job=name, kind=kind, **status).to_text())
    folder.release()


@pytest.fixture
def _history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs of the last month on a machine without a cluster."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    now = time.time()
    metrics = {"loss": 0.25, "accuracy": 0.98765}
    finished(
        "old",
        created=now - 30 * DAY,
        ended=now - 29 * DAY,
        samples_done=995,
        samples_desired=1000,
        evaluations=(Evaluation(step=1, metrics={"accuracy": 0.5}), Evaluation(step=9, metrics=metrics)),
    )
    finished("cut-off", created=now - 20 * DAY, ended=None)
    finished("new", created=now - 3 * HOUR, ended=now - 2 * HOUR, loss=0.125)


@pytest.mark.usefixtures("_history")
def test_newest_first_with_progress_metric_and_age(elasticdl: Any) -> None:
    rows = [line.split() for line in elasticdl("jobs", "list").out.splitlines()]
    assert rows == [
        ["JOB", "KIND", "STATE", "PROGRESS", "METRIC", "AGE", "TOOK", "PLACE"],
        ["new", "train", "succeeded", "-", "loss=0.125", "3h", "1h00m00s", "here"],
        ["cut-off", "train", "interrupted", "-", "-", "20d", "?", "here"],
        ["old", "train", "succeeded", "99%", "accuracy=0.9877", "30d", "24h00m00s", "here"],
    ]
    (first, *_) = json.loads(elasticdl("jobs", "list", "--json").out)
    assert (first["job"], first["loss"], first["samples_total"]) == ("new", 0.125, 0)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, ["JOB", "KIND", "STATE", "PROGRESS", "METRIC", "AGE"]),
        (60, ["JOB", "STATE", "PROGRESS", "AGE"]),
        (20, ["JOB", "STATE", "PROGRESS"]),
    ],
)
def test_narrow_terminal_keeps_names_states_and_progress(
    capsys: pytest.CaptureFixture[str], width: int, columns: list[str]
) -> None:
    progress = JobProgress(samples_done=1, samples_desired=2, metrics={"accuracy": 0.5})
    job = JobSummary(
        job="a-name-of-27-letters-as-many",
        kind="train",
        state=RunState.RUNNING,
        created=1.0,
        ended=None,
        message="",
        location="here",
        progress=progress,
    )
    print_jobs([job], width=width)
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == columns
    assert line.startswith(f"{job.job} ")
    assert "running" in line


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["--state=interrupted"], ["cut-off"]),
        (["--state=succeeded", "--state=interrupted"], ["new", "cut-off", "old"]),
        (["--since=1d"], ["new"]),
        (["--since=25d", "--state=interrupted"], ["cut-off"]),
        (["--kind=train", "--since=25d"], ["new", "cut-off"]),
        (["--kind=predict"], []),
    ],
)
def test_filters_select_jobs(elasticdl: Any, filters: list[str], names: list[str]) -> None:
    assert [entry["job"] for entry in json.loads(elasticdl("jobs", "list", "--json", *filters).out)] == names
    if not names:
        assert elasticdl("jobs", "list", *filters).out == "There are no such jobs.\n"


def test_progress_of_jobs_on_a_cluster(elasticdl: Any, job: ApiServer) -> None:
    job.said(
        state="running",
        samples_done=10,
        samples_total=40,
        evaluations=[{"step": 3, "metrics": {"auc": 0.75}}],
    )
    assert row(elasticdl("jobs", "list").out, "job")[:5] == ["job", "train", "running", "25%", "auc=0.75"]


@pytest.mark.usefixtures("_history")
def test_jobs_older_than_a_duration_are_deleted(elasticdl: Any) -> None:
    result = elasticdl("jobs", "delete", "--older-than=7d")
    assert (result.code, result.out) == (0, "Job old deleted.\n")
    # An interrupted job may be resumed.
    assert [folder.name for folder in JobStore().list()] == ["cut-off", "new"]
    assert elasticdl("jobs", "delete", "--older_than=7d").out == "There are no such jobs.\n"


@pytest.mark.usefixtures("_history")
def test_all_old_runs_of_a_name_are_deleted(elasticdl: Any) -> None:
    now = time.time()
    finished("old", created=now - 28 * DAY, ended=now - 27 * DAY)
    result = elasticdl("jobs", "delete", "--older-than=7d")
    assert (result.code, result.out) == (0, "Job old.1 deleted.\nJob old deleted.\n")


def test_jobs_of_a_cluster_are_deleted_by_age_only_where_a_namespace_is_named(
    elasticdl: Any, job: ApiServer
) -> None:
    other(job, "over", **{"status.json": json.dumps({"job": "over", "state": "succeeded", "now": 1000.0})})
    assert elasticdl("jobs", "delete", "--older-than=1h").out == "There are no such jobs.\n"
    assert elasticdl("jobs", "delete", "--older-than=1h", "--namespace=lab").out == "Job over deleted.\n"
    assert ("configmaps", RECORD) in job.objects


@pytest.mark.parametrize("words", [[], ["job", "--older-than=7d"]])
def test_delete_wants_names_or_an_age(elasticdl: Any, api: ApiServer, words: list[str]) -> None:
    result = elasticdl("jobs", "delete", *words)
    assert result.code == 2
    assert "Name the jobs to delete, or say which by --older_than; not both." in result.err


def test_duration_that_is_none_is_an_error(elasticdl: Any, api: ApiServer) -> None:
    result = elasticdl("jobs", "delete", "--older-than=week")
    assert result.code == 2
    assert "'week' is no duration. Write for example 90s, 30m, 12h, 7d, 2w or 1h30m." in result.err
