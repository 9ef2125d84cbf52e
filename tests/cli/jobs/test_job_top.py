"""`elasticdl jobs top`: what each node uses, once where the output is no terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from elasticdl.catalog.job import NodeUsage
from elasticdl.cli.output.job_top import top_rows, top_table
from elasticdl.jobs.status import JobStatus, NodeReport, RunState
from tests.catalog.api_server import MASTER, RUNNING, ApiServer

STATUS = JobStatus(
    job="clicks",
    state=RunState.RUNNING,
    phase="training",
    start_time=1000.0,
    now=1062.0,
    samples_per_second=1250.0,
    nodes=(
        NodeReport(name="ps-0", role="ps", phase="running", has_joined=True),
        NodeReport(name="worker-0", role="worker", phase="failed", reason="killed"),
        NodeReport(
            name="worker-1", role="worker", phase="running", has_joined=True, samples_per_second=1250.0
        ),
    ),
)
USAGE = {
    "master": NodeUsage(cpu_cores=0.02, memory_bytes=60_000_000),
    "ps-0": NodeUsage(memory_bytes=70_000_000),
    "worker-1": NodeUsage(cpu_cores=1.5, memory_bytes=300_000_000),
}
GPU = NodeUsage(cpu_cores=1.0, memory_bytes=1, gpu_memory_bytes=8_000_000_000, gpu_utilization=0.83)


def test_a_row_for_each_node_that_runs_and_for_the_master() -> None:
    assert top_rows(STATUS, USAGE) == (
        ["NODE", "STATE", "CPU", "MEMORY", "SAMPLES/S"],
        [
            ("master", "working", "2%", "60.0 MB", "-"),
            ("ps-0", "working", "-", "70.0 MB", "-"),
            ("worker-1", "working", "150%", "300 MB", "1,250"),
        ],
    )


def test_gpu_columns_where_a_node_uses_one() -> None:
    header, rows = top_rows(STATUS, {**USAGE, "worker-1": GPU})
    assert header[-2:] == ["GPU", "GPU MEMORY"]
    assert [row[-2:] for row in rows] == [("-", "-"), ("-", "-"), ("83%", "8.0 GB")]


def test_table_of_a_terminal_has_the_state_of_the_job_above_it() -> None:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(top_table(STATUS, USAGE))
    text = console.export_text()
    assert "clicks · training · 1:02 · 1,250 samples/s" in text
    assert "worker-1" in text


@pytest.fixture
def job(api: ApiServer) -> ApiServer:
    node = {
        "name": "worker-0",
        "role": "worker",
        "phase": "running",
        "joined": True,
        "samples_per_second": 9.6,
    }
    api.submitted()
    api.said(state="running", nodes=[node], targets={"worker": 1})
    api.master(**RUNNING)
    return api


def metrics(api: ApiServer, pod: str, *usage: dict[str, str]) -> None:
    containers = [{"name": str(number), "usage": one} for number, one in enumerate(usage)]
    role = "master" if pod == MASTER else "worker"
    labels = {
        "elasticdl-job-name": "job",
        "elasticdl-replica-type": role,
        "elasticdl-replica-index": "0",
    }
    api.put("podmetrics", {"metadata": {"name": pod, "labels": labels}, "containers": containers})


def test_metrics_of_a_cluster_are_summed_over_containers(elasticdl: Any, job: ApiServer) -> None:
    metrics(job, MASTER, {"cpu": "12m", "memory": "60Mi"})
    metrics(
        job, "job-edljob-worker-0", {"cpu": "1250000000n", "memory": "1Gi"}, {"cpu": "0", "memory": "24Mi"}
    )
    result = elasticdl("jobs", "top", "job", "--interval=0.1")
    assert result.code == 0
    assert [line.split() for line in result.out.splitlines()] == [
        ["NODE", "STATE", "CPU", "MEMORY", "SAMPLES/S"],
        ["master", "working", "1%", "62.9", "MB", "-"],
        ["worker-0", "working", "125%", "1.1", "GB", "10"],
    ]


def test_cluster_without_metrics_shows_what_is_known(elasticdl: Any, job: ApiServer) -> None:
    result = elasticdl("jobs", "top", "job", "--interval=0.1")
    assert [line.split() for line in result.out.splitlines()[1:]] == [["worker-0", "working", "-", "-", "10"]]


def test_job_that_is_over_has_no_nodes_to_show(elasticdl: Any, job: ApiServer) -> None:
    job.said(state="succeeded")
    result = elasticdl("jobs", "top", "job")
    assert result.code == 2
    assert "Job job is not running: it has succeeded." in result.err
