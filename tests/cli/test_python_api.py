"""`elasticdl.run` where an event loop runs already, as in a notebook."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import elasticdl
from tests.catalog.api_server import MASTER, RUNNING, ApiServer


def test_local_job_runs_inside_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))

    async def notebook() -> elasticdl.JobResult:
        return elasticdl.run(job_name="job", job_command="true", num_workers=1)

    result = asyncio.run(notebook())
    assert (result.state, result.exit_code) == ("succeeded", 0)
    assert result.status["audit"]["exact"]


def test_cluster_job_runs_inside_an_event_loop(api: ApiServer) -> None:
    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("POST", "pods", MASTER):
            api.master(**RUNNING)
            api.said(state="failed", message="The data is gone.")

    api.meanwhile = meanwhile

    async def notebook() -> elasticdl.JobResult:
        return elasticdl.run(job_name="job", image_name="i", job_command="x")

    result = asyncio.run(notebook())
    assert (result.succeeded, result.message, result.exit_code) == (False, "The data is gone.", 1)
