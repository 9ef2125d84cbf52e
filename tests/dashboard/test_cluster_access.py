"""A dashboard on a cluster: each user's own token decides what they see and do."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from elasticdl.dashboard.registry import DashboardRegistry
from elasticdl.dashboard.server.cluster_access import ClusterAccess, permissions_of
from elasticdl.dashboard.server.sealed_sessions import MOST_PARTS, SealedSessions
from elasticdl.platforms.kubernetes.client import Cluster
from tests.catalog.api_server import RECORD, RUNNING, ApiServer
from tests.catalog.api_server import api as api
from tests.dashboard.client import Client
from tests.dashboard.test_cluster_page import put_training_job

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
    access = ClusterAccess(
        namespace="lab",
        cookie_name="c",
        sessions=SealedSessions(b"secret"),
        cluster=partial(Cluster.connect, patience=0.05),
    )
    refused = asyncio.run(access.refusal("/api/jobs", "", {"authorization": "Bearer ann-token"}))
    assert refused is not None
    assert refused.status == 503


def test_right_that_was_taken_away_is_gone_after_some_seconds(cluster: ApiServer) -> None:
    now = [0.0]
    access = ClusterAccess(
        namespace="lab", cookie_name="c", sessions=SealedSessions(b"secret"), clock=lambda: now[0]
    )

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


def test_session_continues_at_another_server_with_the_same_secret() -> None:
    now = [1000.0]
    first, second, other = (SealedSessions(secret, clock=lambda: now[0]) for secret in (b"a", b"a", b"b"))
    parts = first.seal("ann-token")
    assert second.open(parts) == "ann-token"
    assert other.open(parts) is None
    assert second.open([parts[0][:-4] + "AAAA"]) is None
    assert second.open([]) is None
    now[0] += 9 * 3600
    assert second.open(parts) is None


@pytest.mark.parametrize("count", ["", "0", "9", "1" * 5_000, "²", "-1"])
def test_session_of_a_wrong_number_of_cookies_is_none(count: str) -> None:
    assert SealedSessions(b"secret").open([f"{count}.a", *["b"] * MOST_PARTS]) is None


def test_session_of_a_long_token_has_several_cookies() -> None:
    sessions = SealedSessions(b"secret")
    token = secrets.token_urlsafe(9000)
    parts = sessions.seal(token)
    assert 1 < len(parts) <= MOST_PARTS
    assert all(len(part) < 4000 for part in parts)
    assert sessions.open([*parts, "of-an-older-session"]) == token
    assert sessions.open(parts[:-1]) is None


# -- all namespaces --------------------------------------------------------------------------------------------


@pytest.fixture
def everywhere(cluster: ApiServer, serve: Serve) -> Client:
    """Two more jobs wait, of TrainingJobs in the namespaces lab and other."""
    for name, namespace in (("waiting", "lab"), ("theirs", "other")):
        put_training_job(
            cluster,
            name,
            {"phase": "Pending", "message": "Waits: its minimum does not fit."},
            namespace=namespace,
        )
    return serve(asks_cluster=True)


def names(client: Client, who: dict[str, str]) -> list[str]:
    reply = client.send("GET", "/api/jobs", who)
    assert reply.status == 200
    return [f"{row['namespace']}/{row['job']}" for row in reply.json()["jobs"]]


def test_user_sees_jobs_of_namespaces_with_the_right(everywhere: Client, cluster: ApiServer) -> None:
    assert sorted(names(everywhere, ANN)) == ["lab/job", "lab/waiting"]
    assert names(everywhere, BEN) == []
    assert everywhere.send("GET", "/api/jobs").status == 401


def test_right_to_training_jobs_shows_these_alone(everywhere: Client, cluster: ApiServer) -> None:
    cluster.grants |= {("ben", verb, "trainingjobs", "other") for verb in ("get", "list")}
    assert names(everywhere, BEN) == ["other/theirs"]
    [row] = everywhere.send("GET", "/api/jobs", BEN).json()["jobs"]
    assert row["sentence"] == "It has not started: Waits: its minimum does not fit."
    reply = everywhere.send("GET", "/api/jobs/waiting?namespace=lab", BEN)
    assert reply.status == 403


def test_page_of_a_training_job_needs_the_right_to_it(everywhere: Client, cluster: ApiServer) -> None:
    owner = {"kind": "TrainingJob", "apiVersion": "elasticdl.org/v1", "name": "job", "uid": "uid-of-it"}
    cluster.change("configmaps", RECORD, {"metadata": {"ownerReferences": [owner]}})
    path = f"{READ}?namespace=lab"
    cluster.grants.add(("ben", "get", "trainingjobs", "lab"))
    assert everywhere.send("GET", path, BEN).status == 403, "there is no such TrainingJob"
    cluster.put("trainingjobs", {"metadata": {"name": "job", "namespace": "lab", "uid": "another"}})
    assert everywhere.send("GET", path, BEN).status == 403, "the job is not of this TrainingJob"
    cluster.put("trainingjobs", {"metadata": {"name": "job", "namespace": "lab", "uid": "uid-of-it"}})
    assert everywhere.send("GET", path, BEN).status == 200
    assert everywhere.send("GET", f"{READ}/logs?namespace=lab", BEN).status == 403


@pytest.mark.parametrize("query", ["", "?namespace=", "?namespace=../lab"])
def test_job_without_a_namespace_is_refused(everywhere: Client, query: str) -> None:
    assert everywhere.send("GET", f"{READ}{query}", ANN).status == 400


def test_metrics_of_all_namespaces_need_the_right_to_all(everywhere: Client) -> None:
    reply = everywhere.send("GET", "/api/metrics", ANN)
    assert reply.json()["error"] == "ann may not list configmaps in all namespaces."


def test_stream_has_the_rows_of_its_user(everywhere: Client, cluster: ApiServer) -> None:
    cluster.grants.add(("ben", "list", "trainingjobs", "other"))
    stream = everywhere.stream("/api/stream", **BEN)
    assert next(stream).data.keys() == {"other/theirs"}
    del cluster.objects["trainingjobs", "theirs"]
    del cluster.objects["configmaps", RECORD]
    assert next(stream).data == {"other/theirs": None}, "and not of what others see"
    stream.close()


def test_action_is_done_with_the_token_of_the_user(cluster: ApiServer, serve: Serve) -> None:
    client = serve(asks_cluster=True, allows_actions=True)
    cluster.grants |= {("ann", "patch", kind, "lab") for kind in ("configmaps", "trainingjobs")}
    path = f"{READ}/actions/scale?namespace=lab"
    asked: list[tuple[str, str]] = []
    cluster.on_authorization = lambda method, token: asked.append((method, token))
    reply = client.send("POST", path, {**ANN, **POST}, body=b'{"num_workers": 3}')
    assert reply.status == 200, reply.body
    assert ("PATCH", "Bearer ann-token") in asked
    assert {token for method, token in asked if method == "PATCH"} == {"Bearer ann-token"}
    assert ("POST", "") in asked, "the dashboard asks for reviews as itself"
