"""A dashboard on a cluster: each user's own token decides what they see and do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from elasticdl.dashboard.registry import DashboardRegistry
from elasticdl.dashboard.server.cluster_access import ClusterAccess, permissions_of
from elasticdl.dashboard.settings import DashboardSettings
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster
from tests.catalog.api_server import RUNNING, ApiServer
from tests.catalog.api_server import api as api
from tests.dashboard.client import Client

Serve = Callable[..., Client]
POST = {"X-ElasticDL-Dashboard": "1"}
ANN, BEN = {"Authorization": "Bearer ann-token"}, {"Authorization": "Bearer ben-token"}
READ = "/api/jobs/job"


@pytest.fixture
def cluster(home: Path, api: ApiServer) -> ApiServer:
    """A running job; Ann may see the jobs of its namespace, Ben nothing."""
    api.submitted()
    api.master(**RUNNING)
    api.said(state="running", targets={"worker": 2}, samples_done=300, samples_total=1000)
    api.users = {
        "ann-token": {"username": "ann", "groups": ["lab"]},
        "ben-token": {"username": "ben", "groups": []},
    }
    api.grants = {("ann", "list", "configmaps", "lab"), ("ann", "get", "configmaps", "lab")}
    return api


@pytest.fixture
def client(cluster: ApiServer, serve: Serve) -> Client:
    return serve(namespace="lab", asks_cluster=True)


def test_user_with_the_right_sees_jobs(client: Client) -> None:
    reply = client.send("GET", "/api/jobs", ANN)
    assert reply.status == 200
    assert [row["job"] for row in reply.json()["jobs"]] == ["job"]
    assert client.send("GET", READ, ANN).status == 200


@pytest.mark.parametrize("path", ["/api/jobs", "/api/stream", READ, "/api/metrics", "/api/cluster"])
def test_user_without_the_right_is_refused_with_what_is_missing(client: Client, path: str) -> None:
    reply = client.send("GET", path, BEN)
    assert reply.status == 403
    assert reply.json()["error"].startswith("ben may not ")


def test_logs_are_a_right_of_their_own(client: Client, cluster: ApiServer) -> None:
    reply = client.send("GET", f"{READ}/logs", ANN)
    assert reply.status == 403
    assert "get pods/log in namespace lab" in reply.json()["error"]


def test_rights_are_asked_for_in_the_namespace_that_is_read(client: Client) -> None:
    reply = client.send("GET", f"{READ}?namespace=other", ANN)
    assert reply.status == 403
    assert "in namespace other" in reply.json()["error"]


@pytest.mark.parametrize("query", ["namespace=other&namespace=", "namespace=&namespace=", ""])
def test_namespace_that_is_checked_is_the_one_that_is_read(query: str) -> None:
    """The application reads the last of several, and its own for an empty one."""
    [permission] = permissions_of(READ, query, namespace="lab")
    assert permission.namespace == "lab"


@pytest.mark.parametrize("token", ["", "wrong", "x" * 20_000])
def test_unknown_token_is_refused(client: Client, token: str) -> None:
    assert client.send("GET", "/api/jobs", {"Authorization": f"Bearer {token}"}).status == 401


def test_token_of_the_dashboard_itself_opens_nothing(client: Client, home: Path) -> None:
    token = DashboardRegistry(home).token()
    assert client.send("GET", "/api/jobs", {"Authorization": f"Bearer {token}"}).status == 401
    assert client.send("GET", "/api/jobs").status == 401


def test_session_is_of_the_user_who_began_it(client: Client) -> None:
    for who, status in ((ANN, 200), (BEN, 403)):
        begun = client.send("POST", "/api/session", {**who, **POST})
        assert begun.status == 200
        cookie = begun.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "token" not in cookie
        assert client.send("GET", "/api/jobs", {"Cookie": cookie.partition(";")[0]}).status == status


def test_session_needs_a_token_that_the_cluster_accepts(client: Client) -> None:
    assert client.send("POST", "/api/session", {"Authorization": "Bearer wrong", **POST}).status == 401
    assert client.send("POST", "/api/session", POST).status == 401
    assert client.send("GET", "/api/jobs", {"Cookie": "elasticdl-1=guess"}).status == 401


def test_actions_need_the_right_and_the_flag(cluster: ApiServer, serve: Serve) -> None:
    client = serve(namespace="lab", asks_cluster=True, allows_actions=True)
    path = f"{READ}/actions/delete"
    assert client.send("POST", path, {**ANN, **POST}).status == 403
    # Not enough: what the TrainingJob of a job may be is asked, too.
    cluster.grants.add(("ann", "delete", "configmaps", "lab"))
    without = serve(namespace="lab", asks_cluster=True)
    assert without.send("POST", path, {**ANN, **POST}).status == 403
    again = serve(namespace="lab", asks_cluster=True, allows_actions=True)
    reply = again.send("POST", path, {**ANN, **POST})
    assert reply.json()["error"] == "ann may not delete trainingjobs in namespace lab."


def test_cluster_that_cannot_be_asked_shows_nothing(cluster: ApiServer) -> None:
    cluster.hangs_up = lambda method, kind, name: kind == "tokenreviews"
    access = ClusterAccess(namespace="lab", cookie_name="c", cluster=partial(Cluster.connect, patience=0.05))
    refused = asyncio.run(access.refusal("/api/jobs", "", {"authorization": "Bearer ann-token"}))
    assert refused is not None
    assert refused.status == 503


def test_right_that_was_taken_away_is_gone_after_some_seconds(cluster: ApiServer) -> None:
    now = [0.0]
    access = ClusterAccess(namespace="lab", cookie_name="c", clock=lambda: now[0])

    async def refusals() -> list[int | None]:
        found = []
        for seconds in (0.0, 1.0, 60.0):
            now[0] = seconds
            refused = await access.refusal("/api/jobs", "", {"authorization": "Bearer ann-token"})
            found.append(None if refused is None else int(refused.status))
            cluster.grants.clear()
        return found

    assert asyncio.run(refusals()) == [None, None, 403]


def test_paths_that_are_not_known_need_no_review(client: Client, cluster: ApiServer) -> None:
    assert client.send("GET", "/api/nothing", ANN).status == 404
    assert permissions_of(f"{READ}/actions/rename", "", namespace="lab") == ()


def test_cluster_page_needs_rights_in_all_namespaces(client: Client, cluster: ApiServer) -> None:
    cluster.grants |= {("ann", "list", "nodes", ""), ("ann", "list", "pods", "")}
    assert client.send("GET", "/api/cluster", ANN).json()["error"] == (
        "ann may not list trainingjobs in all namespaces."
    )


def test_namespace_must_be_named() -> None:
    with pytest.raises(UserError, match="jobs of the cluster only"):
        DashboardSettings(asks_cluster=True).check()
