"""Handles of jobs: started here, in the background or on a cluster, found again, and used from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import elasticdl
from elasticdl.jobs.status import RunState
from tests.catalog.api_server import MASTER, NAMESPACE, RECORD, RUNNING, ApiServer
from tests.catalog.api_server import api as api

Start = Callable[..., elasticdl.JobHandle]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a job on this machine that runs a shell command in one worker."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))

    def start(command: str, *, name: str = "job", **more: Any) -> elasticdl.JobHandle:
        return elasticdl.train(job_name=name, job_command=command, num_workers=1, **more)

    return start


def test_started_job_is_scaled_waited_for_and_read(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = start(f"echo hello; while ! test -e {gate}; do sleep 0.05; done")
    assert job.name == "job"
    assert job.status().state in (RunState.STARTING, RunState.RUNNING)
    with pytest.raises(TimeoutError, match=r"Job job still runs after 0.1 s\."):
        job.wait(0.1)
    assert job.scale(num_workers=2) == "from 1 to 2 workers"
    with pytest.raises(elasticdl.UserError, match="at least 1"):
        job.scale(num_workers=0)
    gate.touch()
    result = job.result()
    assert (result.job_name, result.succeeded) == ("job", True)
    assert result == job.wait()
    assert job.status().state is RunState.SUCCEEDED
    assert job.summary().kind == "train"
    assert job.metrics() == {}
    assert job.logs("worker-0") == ["hello"]
    assert "worker-1: hello" in job.logs()
    with pytest.raises(elasticdl.UserError, match=r"no log of 'worker-9'. Did you mean worker-"):
        job.logs("worker-9")
    with pytest.raises(elasticdl.UserError, match="tail=-1"):
        job.logs(tail=-1)
    # However short, a timeout is none of a job that is over.
    assert job.wait(0) == result
    with pytest.raises(elasticdl.UserError, match="timeout=-1"):
        job.wait(-1)
    with pytest.raises(elasticdl.UserError, match="is not running: it has succeeded"):
        job.stop()
    with pytest.raises(elasticdl.UserError, match="it has succeeded"):
        job.resume()


def test_handle_means_its_run_after_the_name_is_used_again(start: Start) -> None:
    first = start("echo first")
    first.result()
    found = elasticdl.job("job")
    second = start("echo second")
    second.result()
    assert [handle.logs("worker-0") for handle in (first, found, second)] == [
        ["first"],
        ["first"],
        ["second"],
    ]
    assert first.wait().job_name == "job"
    assert [repr(handle) for handle in elasticdl.list_jobs()] == ["JobHandle('job.1')", "JobHandle('job.2')"]


def test_what_is_no_job_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    nothing: Any = None
    with pytest.raises(elasticdl.UserError, match="None is no name of a job"):
        elasticdl.job(nothing)
    with pytest.raises(
        elasticdl.UserError, match=r"'sucseeded' is no state of a job. Did you mean succeeded\?"
    ):
        elasticdl.list_jobs(state="sucseeded")
    number: Any = 3
    with pytest.raises(elasticdl.UserError, match="3 is not a kind of job"):
        elasticdl.run(number)


def test_failed_job_raises_with_its_result(start: Start) -> None:
    job = start("sh -c 'exit 3'", relaunch_on_worker_failure=0)
    assert not job.wait().succeeded
    with pytest.raises(
        elasticdl.JobFailed, match="Job job has failed: worker-0 ended with exit code 3"
    ) as failed:
        job.result()
    assert failed.value.job_result.state == "failed"


def test_detached_job_is_stopped_resumed_and_replaced(start: Start, tmp_path: Path) -> None:
    job = start("sleep 600", detach=True)
    assert job.stop().state == "stopped"
    with pytest.raises(elasticdl.JobFailed, match="Job job has stopped"):
        job.result()
    job.resume()
    assert job.status().state.is_active
    assert [found.name for found in elasticdl.list_jobs(state="running")] == ["job"]
    other = start("true", replace=True)
    assert other.result().succeeded
    assert job.wait().state == "stopped"
    # Both attempts of the first run.
    assert {"worker-0", "worker-1"} <= {path.stem for path in (tmp_path / "home/jobs/job/logs").glob("*.log")}


def test_job_is_used_from_an_event_loop(start: Start) -> None:
    async def notebook() -> None:
        job = start("echo hello; exec sleep 600")
        lines = job.logs_async("worker-0")
        assert await anext(lines) == "hello"
        # What blocks works, too: a notebook has a loop that runs.
        assert job.status().state is RunState.RUNNING
        stopping = asyncio.create_task(job.stop_async())
        assert (await job).state == "stopped"
        assert (await stopping).state == "stopped"
        # Until the job ends.
        assert "hello" not in [line async for line in lines]
        assert (await job.status_async()).state is RunState.STOPPED
        with pytest.raises(elasticdl.JobFailed):
            await job.result_async()

    asyncio.run(notebook())


def test_wait_shows_progress_unless_quiet(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    job = start("true")
    assert capsys.readouterr().out == ""
    assert job.wait(quiet=False).succeeded
    assert "Job job has succeeded." in capsys.readouterr().out


def test_package_of_jobs_lists_them(start: Start) -> None:
    start("true").result()
    (listed,) = elasticdl.jobs()
    assert listed.name == "job"
    assert elasticdl.jobs(state="failed") == []
    assert elasticdl.jobs.spec.JobSpec is elasticdl.JobSpec


def test_unknown_job_is_an_error_that_names_the_nearest(start: Start) -> None:
    start("true", name="nightly").result()
    with pytest.raises(elasticdl.UserError, match=r"There is no job 'nightli'\. Did you mean nightly"):
        elasticdl.job("nightli")


def test_deleted_job_is_an_error_in_every_method(start: Start) -> None:
    from elasticdl.jobs.job_store import JobStore

    job = start("true")
    job.result()
    JobStore().delete("job")
    for method in (job.status, job.summary, job.logs, job.stop, job.resume):
        with pytest.raises(elasticdl.UserError, match=r"There is no job 'job\.1'"):
            method()


# -- on a cluster --------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(api: ApiServer) -> ApiServer:
    """Its masters come up and run."""

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("POST", "pods", MASTER):
            api.master(**RUNNING)
            api.said(state="running", kind="train", targets={"worker": 1})

    api.meanwhile = meanwhile
    return api


def test_job_on_a_cluster_is_started_and_waited_for(cluster: ApiServer) -> None:
    job = elasticdl.train(job_name="job", image_name="i", job_command="x", namespace=NAMESPACE)
    assert job.status().state is RunState.RUNNING
    (listed,) = elasticdl.list_jobs()
    assert repr(listed) == f"JobHandle('job', namespace='{NAMESPACE}')"
    cluster.said(state="failed", message="The data is gone.")
    with pytest.raises(elasticdl.JobFailed, match="The data is gone"):
        listed.result()


def test_ended_job_on_a_cluster_is_replaced(cluster: ApiServer) -> None:
    flags: dict[str, Any] = {"job_name": "job", "image_name": "i", "job_command": "x", "namespace": NAMESPACE}
    elasticdl.train(**flags)
    first = cluster.objects["configmaps", RECORD]["metadata"]["uid"]
    cluster.change("pods", MASTER, {"status": {"phase": "Succeeded"}})
    cluster.said(state="failed", message="The data is gone.")
    with pytest.raises(elasticdl.UserError, match="is in use"):
        elasticdl.train(**flags)
    job = elasticdl.train(replace=True, **flags)
    assert job.status().state is RunState.RUNNING
    assert cluster.objects["configmaps", RECORD]["metadata"]["uid"] != first
