"""`elasticdl jobs list`: jobs that cannot be read hide no others, and a cluster is asked twice for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from tests.catalog.api_server import RECORD, RUNNING, ApiServer


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
    assert row(result.out, "bad") == ["bad", "?", "?", "?", "?", "here"]
    assert row(result.out, "good")[:2] == ["good", "train"]
    assert "The record of job bad is damaged" in result.err
