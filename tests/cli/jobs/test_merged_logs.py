"""`elasticdl jobs logs`: the lines of all nodes by time, whatever programs print; --since and --grep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.local.log_files import LogWriter
from tests.catalog.api_server import MASTER, RUNNING, ApiServer
from tests.master.fake_time import Clock

NODES = ("master", "worker-0", "worker-1")


@pytest.fixture
def _job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished one whose nodes have printed a line in turn, ten seconds apart."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    folder = JobStore().create(JobSpec.build(job_name="turns", job_command="x"), now=1000.0)
    clock = Clock()
    writers = {name: LogWriter(folder.log_path(name), clock=clock) for name in NODES}
    for turn in range(2):
        for name, writer in writers.items():
            writer.write(f"turn {turn}\n  of {name}\n".encode())
            clock.now += 10
    folder.finish("succeeded", now=clock())
    folder.release()


@pytest.mark.usefixtures("_job")
def test_lines_of_all_nodes_are_in_the_order_of_time(elasticdl: Any) -> None:
    assert elasticdl("jobs", "logs", "turns").out.splitlines() == [
        line
        for turn in range(2)
        for name in NODES
        for line in (f"{name}: turn {turn}", f"{name}:   of {name}")
    ]


@pytest.mark.usefixtures("_job")
def test_since_leaves_out_what_is_older(elasticdl: Any) -> None:
    shown = elasticdl("jobs", "logs", "turns", "--since=1970-01-01T00:17:00+00:00").out
    assert shown.splitlines() == [
        "worker-1: turn 0",
        "worker-1:   of worker-1",
        *(line for name in NODES for line in (f"{name}: turn 1", f"{name}:   of {name}")),
    ]
    assert elasticdl("jobs", "logs", "turns", "--since=1h").out == ""


@pytest.mark.usefixtures("_job")
def test_grep_keeps_the_lines_that_match(elasticdl: Any) -> None:
    shown = elasticdl("jobs", "logs", "turns", "--grep", "of worker-[01]$").out
    assert shown.splitlines() == ["worker-0:   of worker-0", "worker-1:   of worker-1"] * 2
    wrong = elasticdl("jobs", "logs", "turns", "--grep", "(")
    assert wrong.code == 2
    assert "--grep: '(' is no regular expression" in wrong.err


@pytest.mark.usefixtures("_job")
def test_tail_counts_the_lines_of_each_log(elasticdl: Any) -> None:
    shown = elasticdl("jobs", "logs", "turns", "--tail=1").out
    assert shown.splitlines() == [f"{name}:   of {name}" for name in NODES]


@pytest.mark.usefixtures("_job")
def test_invalid_since_is_an_error(elasticdl: Any) -> None:
    wrong = elasticdl("jobs", "logs", "turns", "--since=yesterday")
    assert wrong.code == 2
    assert "'yesterday' is no moment. Write how long ago" in wrong.err


def test_logs_of_pods_are_merged_by_their_timestamps(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    api.worker(0)

    def at(*seconds: int) -> Any:
        return lambda query: iter([f"2026-11-16T05:35:{second:02d}Z at {second}\n" for second in seconds])

    api.logs |= {MASTER: at(1, 3, 5), "job-edljob-worker-0": at(2, 4)}
    assert elasticdl("jobs", "logs", "job").out.splitlines() == [
        "master: at 1",
        "worker-0: at 2",
        "master: at 3",
        "worker-0: at 4",
        "master: at 5",
    ]
    shown = elasticdl("jobs", "logs", "job", "--since=2026-11-16T05:35:04+00:00").out
    assert shown.splitlines() == ["worker-0: at 4", "master: at 5"]
    assert api.log_queries[-1][1]["sinceTime"] == "2026-11-16T05:35:04Z"
