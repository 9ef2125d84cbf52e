"""The manifest of the dashboard on a cluster grants what its pages read, and no more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from elasticdl.cli.dashboard import dashboard
from elasticdl.dashboard.data.cluster_watch import ClusterWatch
from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.data.job_watch import JobWatch
from elasticdl.dashboard.server.cluster_access import ClusterAccess
from elasticdl.dashboard.server.log_stream import LogRequest, read_lines
from elasticdl.dashboard.server.sealed_sessions import SealedSessions
from elasticdl.dashboard.settings import DEFAULT_PORT, DashboardSettings
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore
from tests.catalog.api_server import NAMESPACE, ApiServer
from tests.dashboard.test_cluster_page import put_node, put_training_job


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


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """API group, resource and verb."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_controller_has_the_rights_that_its_dashboard_uses(api: ApiServer, tmp_path: Path) -> None:
    text = (files("elasticdl") / "manifests/edl-controller.yaml").read_text()
    roles = {
        document["metadata"]["name"]: granted(document)
        for document in yaml.safe_load_all(text)
        if document["kind"] == "ClusterRole"
    }
    api.submitted()
    api.master(phase="Running")
    api.said(state="running")
    put_node(api, "node-0")
    put_training_job(api, "waiting", {"phase": "Pending"})
    api.users = {"token": {"username": "ann"}}
    api.grants = {("ann", "list", "trainingjobs", NAMESPACE)}

    async def look() -> None:
        source = JobSource(everywhere=True, store=JobStore(tmp_path))
        rows = await source.rows()
        assert {row["job"] for row in rows.rows.values()} == {"job", "waiting"}
        for name in ("job", "waiting"):
            with contextlib.suppress(UserError):
                await JobWatch(source, name, NAMESPACE, allows_actions=False).read()
        async with source.job("job", NAMESPACE) as job:
            await read_lines(job, LogRequest())
        await ClusterWatch().read()
        access = ClusterAccess(namespace="", cookie_name="c", sessions=SealedSessions(b"secret"))
        headers = {"authorization": "Bearer token"}
        assert await access.refusal("/api/jobs", "", headers) is None
        assert await access.refusal("/api/jobs/waiting", f"namespace={NAMESPACE}", headers) is not None

    asyncio.run(look())
    groups = {
        "trainingjobs": "elasticdl.org",
        "tokenreviews": "authentication.k8s.io",
        "subjectaccessreviews": "authorization.k8s.io",
    }
    used = set()
    for method, kind, name in api.asked:
        verb = "create" if method == "POST" else "get" if name else "list"
        resource = "pods/log" if name.endswith("/log") else kind
        if kind:
            used.add((groups.get(kind, ""), resource, verb))
    own = roles["training-job-controller-dashboard"]
    assert used <= own | roles["training-job-controller"]
    unused = {each for each in own - used if each[0] != "paddlepaddle.org"}
    assert not unused, "no more than is used"
    assert not own & roles["training-job-controller"]


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
