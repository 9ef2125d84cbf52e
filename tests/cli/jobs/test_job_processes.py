"""`elasticdl jobs pid` tells the processes of a running job's nodes, and nothing once it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobFolder]:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    spec = JobSpec.build(
        kind="train", model_zoo="zoo", model_def="a.b.model", training_data="data", job_name="sleeper"
    )
    made = JobStore().create(spec)
    yield made
    made.release()


@pytest.fixture
def host(folder: JobFolder) -> Iterator[Host]:
    with Host(folder.socket_path(), folder.logs_path, os.environ) as running:
        for name in ("master", "worker-0"):
            running.spawn(NodeRequest(name=name, role=name.split("-")[0], command=("sleep", "600")))
        yield running


def test_all_nodes_or_one(host: Host, elasticdl: Any) -> None:
    everything = elasticdl("jobs", "pid", "sleeper")
    assert everything.out.splitlines() == [
        f"master {host.pid('master')}",
        f"worker-0 {host.pid('worker-0')}",
    ]
    assert elasticdl("jobs", "pid", "sleeper", "worker-0").out == f"{host.pid('worker-0')}\n"


def test_a_node_that_is_not_there(host: Host, elasticdl: Any) -> None:
    wrong = elasticdl("jobs", "pid", "sleeper", "worker-1")
    assert wrong.code == 2
    assert "Did you mean worker-0?" in wrong.err


def test_job_without_processes_fails(folder: JobFolder, elasticdl: Any) -> None:
    silent = elasticdl("jobs", "pid", "sleeper")
    assert silent.code == 2
    assert "does not report its processes" in silent.err
    folder.release()
    assert "is not running" in elasticdl("jobs", "pid", "sleeper").err
