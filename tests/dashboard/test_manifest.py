"""The manifest of the dashboard on a cluster grants what its pages read, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticdl.cli.dashboard import dashboard
from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.data.job_watch import JobWatch
from elasticdl.dashboard.server.log_stream import LogRequest, read_lines
from elasticdl.dashboard.settings import DEFAULT_PORT, DashboardSettings
from elasticdl.jobs.job_store import JobStore
from tests.catalog.api_server import NAMESPACE, ApiServer


@pytest.fixture
def documents() -> dict[str, dict[str, Any]]:
    text = (files("elasticdl") / "manifests/elasticdl-dashboard.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    server = ApiServer()
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    yield server
    server.close()


def test_every_request_of_the_pages_is_granted(
    documents: dict[str, dict[str, Any]], api: ApiServer, tmp_path: Path
) -> None:
    api.submitted()
    api.master(phase="Running")
    api.worker(0)
    api.said(state="running")

    async def look() -> None:
        source = JobSource(namespace=NAMESPACE, store=JobStore(tmp_path))
        rows = await source.rows()
        assert [row["job"] for row in rows.rows.values()] == ["job"]
        await JobWatch(source, "job", NAMESPACE, allows_actions=False).read()
        async with source.job("job", NAMESPACE) as job:
            await job.log_names()
            await read_lines(job, LogRequest())

    asyncio.run(look())
    rights = {
        (group, resource): set(rule["verbs"])
        for rule in documents["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    used: dict[tuple[str, str], set[str]] = {}
    for method, kind, name in api.asked:
        assert method == "GET"
        key = ("", kind)
        if name.endswith("/log"):
            key = ("", "pods/log")
        used.setdefault(key, set()).add("get" if name else "list")
    assert {("", "configmaps"), ("", "pods"), ("", "pods/log")} <= used.keys()
    for key, verbs in used.items():
        assert verbs <= rights[key], key
    assert all(verbs <= {"get", "list"} for verbs in rights.values())


def test_command_listens_where_only_the_pod_reaches_it(documents: dict[str, dict[str, Any]]) -> None:
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    program, command, *flags = container["command"]
    assert (program, command) == ("elasticdl", "dashboard")
    assert CliRunner().invoke(dashboard, [*flags, "--help"]).exit_code == 0
    assert not [flag for flag in flags if flag.startswith(("--bind", "--allow_actions"))]
    assert DashboardSettings().is_loopback
    assert f"--port={DEFAULT_PORT}" in flags
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["securityContext"]["runAsNonRoot"]
