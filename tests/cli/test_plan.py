"""`elasticdl plan`: why a job has its size, and what if."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CLUSTER = """\
machines:
  - {name: node, count: 2, cpu: 8}
jobs:
  - name: clicks
    work_total: 100000
    groups:
      - {role: worker, min: 2, max: 8, cpu: 2}
    running:
      worker: {node-0: 4, node-1: 4}
pods:
  - {name: web, machine: node-0, cpu: 0.1}
"""
JOB = """\
name: images
work_total: 100
groups:
  - {role: worker, min: 2, max: 2, cpu: 2}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.replace("node-0: 4,", "node-0: 3,"))
    return path


@pytest.fixture
def new_job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_every_job_is_explained(elasticdl: Any, cluster: Path) -> None:
    result = elasticdl("plan", str(cluster))
    assert result.code == 0, result.err
    assert result.out.startswith("default/clicks: hold, size 7. ")


def test_what_if_shows_start_victims_and_ends(elasticdl: Any, cluster: Path, new_job: Path) -> None:
    result = elasticdl("plan", str(cluster), "--what-if", str(new_job))
    assert result.code == 0, result.err
    assert "What if: default/images would train in" in result.out
    assert "default/clicks would shrink from 7 to" in result.out
    assert "default/clicks: done in" in result.out
    assert "without it" in result.out


def test_json_has_decisions_and_forecast(elasticdl: Any, cluster: Path, new_job: Path) -> None:
    result = elasticdl("plan", str(cluster), "--what_if", str(new_job), "--json")
    document = json.loads(result.out)
    decisions = {one["job"]: one for one in document["decisions"]}
    assert decisions["default/images"]["decision"] == "admit"
    assert decisions["default/clicks"]["decision"] == "shrink"
    assert decisions["default/clicks"]["victims"]
    jobs = {one["job"]: one for one in document["what_if"]["jobs"]}
    assert jobs["default/images"]["starts_in_seconds"] < 60
    assert jobs["default/clicks"]["ends_in_seconds"] > jobs["default/clicks"]["ends_in_seconds_without"]


def test_pictures_are_written(elasticdl: Any, cluster: Path, tmp_path: Path) -> None:
    svg, png = tmp_path / "plan.svg", tmp_path / "plan.png"
    result = elasticdl("plan", str(cluster), f"--svg={svg}", f"--png={png}")
    assert result.code == 0, result.err
    assert svg.read_text().startswith("<svg")
    assert "clicks" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")


def test_output_of_kubectl_is_accepted(elasticdl: Any, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    node = {
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}},
    }
    labels = {"app": "elasticdl", "elasticdl-job-name": "clicks", "elasticdl-replica-type": "worker"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "elasticdl-clicks-worker-0", "namespace": "team", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    path.write_text(json.dumps({"kind": "List", "items": [node, pod]}))
    result = elasticdl("plan", str(path))
    assert result.code == 0, result.err
    assert result.out.startswith("team/clicks: hold, size 1.")


def test_cluster_without_jobs_says_so(elasticdl: Any, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: 2x8cpu\n")
    assert elasticdl("plan", str(path)).out == "There are no jobs.\n"


def test_job_that_never_fits_is_rejected(elasticdl: Any, cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text(JOB.replace("min: 2, max: 2", "min: 99, max: 99"))
    result = elasticdl("plan", str(cluster), "--what_if", str(path))
    assert result.code == 0, result.err
    assert "default/images: reject" in result.out
    assert "What if: default/images would be rejected" in result.out


def test_job_that_is_there_already_is_an_error(elasticdl: Any, cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "same.yaml"
    path.write_text(JOB.replace("images", "clicks"))
    result = elasticdl("plan", str(cluster), "--what_if", str(path))
    assert result.code == 2
    assert "has a job default/clicks already" in result.err


@pytest.mark.parametrize(
    ("words", "message"), [([], "none is configured"), (["absent.yaml"], "no file absent.yaml")]
)
def test_missing_cluster_is_an_error_in_words(elasticdl: Any, words: list[str], message: str) -> None:
    result = elasticdl("plan", *words)
    assert result.code == 2
    assert message in result.err
