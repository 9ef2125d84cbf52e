"""Which requests the dashboard answers: by name, origin, method and token, at the real server."""

from __future__ import annotations

import http.cookies
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dashboard.client import Client
from tests.dashboard.stored_jobs import store_job

Serve = Callable[..., Client]
POST = {"X-ElasticDL-Dashboard": "1"}


@pytest.fixture
def client(serve: Serve) -> Client:
    return serve()


def session(client: Client) -> str:
    reply = client.send("POST", "/api/session", {**client.bearer, **POST})
    assert reply.status == 200
    return reply.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "path", ["/api/jobs", "/api/stream", "/api/jobs/one", "/api/jobs/one/logs", "/api/nothing"]
)
@pytest.mark.parametrize("authorization", [None, "Bearer ", "Bearer wrong", "Basic wrong"])
def test_data_without_the_token_is_refused(client: Client, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    assert client.send("GET", path, headers).status == 401


def test_token_in_the_address_is_not_read(client: Client) -> None:
    assert client.send("GET", f"/api/jobs?token={client.token}").status == 401


def test_cookie_of_a_session_opens_data_and_is_out_of_reach_of_scripts(client: Client) -> None:
    header = session(client)
    (cookie,) = http.cookies.SimpleCookie(header).values()
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == "/"
    assert client.token not in header
    assert client.send("GET", "/api/jobs", {"Cookie": f"{cookie.key}={cookie.value}"}).status == 200
    assert client.send("GET", "/api/jobs", {"Cookie": f"{cookie.key}={cookie.value}x"}).status == 401
    assert client.send("GET", "/api/jobs", {"Cookie": f"{cookie.key}={client.token}"}).status == 401


def test_session_begins_with_the_token_and_the_header_only(client: Client) -> None:
    cookie = session(client).partition(";")[0]
    assert client.send("POST", "/api/session", POST).status == 401
    assert client.send("POST", "/api/session", {**POST, "Cookie": cookie}).status == 401
    assert client.send("POST", "/api/session", client.bearer).status == 403
    assert client.get("/api/session").status == 405


def test_session_outlives_a_restart_of_the_server(serve: Serve, home: Path) -> None:
    first = serve()
    cookie = session(first).partition(";")[0].partition("=")[2]
    second = serve()
    assert second.token == first.token
    headers = {"Cookie": f"elasticdl-{second.port}={cookie}"}
    assert second.send("GET", "/api/jobs", headers).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "127.0.0.1:x",
        "localhost.evil.example:{port}",
        "127.0.0.1:{port}@evil.example",
        "evil.example:{port},127.0.0.1:{port}",
        "",
        "[::1",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/jobs"])
def test_other_names_are_refused_whatever_else_is_right(client: Client, host: str, path: str) -> None:
    reply = client.get(path, Host=host.format(port=client.port))
    assert reply.status in (400, 421)
    assert b"<html" not in reply.body


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:8580", "LocalHost:1", "[::1]", "[::1]:443"])
def test_names_of_loopback_are_answered_through_any_tunnel(client: Client, name: str) -> None:
    assert client.get("/api/jobs", Host=name, Origin=f"http://{name}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
    ],
)
def test_other_origins_are_refused(client: Client, origin: str) -> None:
    assert client.get("/api/jobs", Origin=origin.format(port=client.port)).status == 403


def test_own_origin_is_answered_without_leave_for_others(client: Client) -> None:
    reply = client.get("/api/jobs", Origin=f"http://{client.authority}")
    assert reply.status == 200
    assert "Access-Control-Allow-Origin" not in reply.headers


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_requests_that_a_browser_marks_as_of_another_site(client: Client, site: str, status: int) -> None:
    assert client.get("/api/jobs", **{"Sec-Fetch-Site": site}).status == status


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/api/jobs", "/api/jobs/one/actions/stop"])
def test_other_methods_are_refused(serve: Serve, method: str, path: str) -> None:
    client = serve(allows_actions=True)
    assert client.send(method, path, {**client.bearer, **POST}).status == 405


def test_actions_are_disabled_by_default(client: Client, home: Path) -> None:
    folder = store_job(home, "one")
    reply = client.send("POST", "/api/jobs/one/actions/delete", {**client.bearer, **POST}, b"{}")
    assert reply.status == 403
    assert "--allow_actions" in reply.json()["error"]
    assert folder.path.exists()


def test_enabled_action_needs_the_header_and_the_token(serve: Serve, home: Path) -> None:
    client, folder = serve(allows_actions=True), store_job(home, "one")
    path = "/api/jobs/one/actions/delete"
    assert client.send("POST", path, client.bearer, b"{}").status == 403
    assert client.send("POST", path, POST, b"{}").status == 401
    assert client.send("POST", path, {**client.bearer, **POST, "Origin": "http://evil.example"}).status == 403
    assert folder.path.exists()
    reply = client.send("POST", path, {**client.bearer, **POST}, b"{}")
    assert (reply.status, reply.json()) == (200, {"message": "Job one is deleted."})
    assert not folder.path.exists()


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/jobs", "/nothing", "/api/jobs/nothing"])
def test_every_response_has_the_policy(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/%2e%2e/server.py",
        "/..%2fserver.py",
        "/vendor/../../server.py",
        "/vendor/LICENSE.htm",
        "//etc/passwd",
        "/pages/index.html",
    ],
)
def test_only_files_of_the_pages_are_served(client: Client, path: str) -> None:
    assert client.send("GET", path).status == 404


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fetc", ".new-x", "no%7fjob", "one.2"])
def test_names_of_jobs_are_never_paths(client: Client, home: Path, name: str) -> None:
    store_job(home, "one")
    assert client.get(f"/api/jobs/{name}").status in (400, 404)


@pytest.mark.parametrize("path", ["logs", "logs/stream"])
def test_names_of_nodes_are_never_paths(client: Client, home: Path, path: str) -> None:
    folder = store_job(home, "one")
    (home / "secret.log").write_text("secret\n")
    assert (folder.logs_path / "../../../secret.log").read_text() == "secret\n"
    for node in ("../../../secret", "%2e%2e/%2e%2e/%2e%2e/secret", str(home / "secret"), "."):
        reply = client.get(f"/api/jobs/one/{path}?node={node}")
        assert reply.status == 404
        assert b"no log of" in reply.body


def test_header_that_is_there_twice_is_refused(client: Client) -> None:
    connection = client.connect()
    connection.putrequest("GET", "/api/jobs", skip_host=True)
    for value in (client.authority, "evil.example"):
        connection.putheader("Host", value)
    connection.putheader("Authorization", f"Bearer {client.token}")
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
