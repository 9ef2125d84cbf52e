"""`elasticdl jobs logs` of a job that has none: said, with the reason, and no empty success."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.catalog.kubernetes.job import ClusterJob, ClusterJobs
from elasticdl.catalog.job import LogLine


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """On a cluster, with a record and no pods."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    monkeypatch.setattr(ClusterJobs, "find", lambda jobs, name: ClusterJob(jobs, name))
    monkeypatch.setattr(ClusterJob, "_pods", lambda job: {})
    return "gone"


@pytest.mark.parametrize("words", [(), ("worker-0",), ("-f",)])
def test_its_pods_have_been_deleted(
    elasticdl: Any, job: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterJob, "is_running", lambda job: False)
    result = elasticdl("jobs", "logs", job, *words, "--namespace=lab")
    assert result.code == 2
    assert "There are no logs of job gone." in result.err
    assert "They went with the job's pods" in result.err


def test_its_pods_are_to_come(elasticdl: Any, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(job: ClusterJob, node: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        yield LogLine(node="master", text="hello")

    monkeypatch.setattr(ClusterJob, "is_running", lambda job: True)
    monkeypatch.setattr(ClusterJob, "log_lines", lines)
    result = elasticdl("jobs", "logs", job, "-f", "--namespace=lab")
    assert (result.code, result.out) == (0, "master: hello\n")
