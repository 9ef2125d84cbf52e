"""Probes over HTTP: what is answered while the controller works, before it knows the cluster, and when it hangs."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest

from elasticdl.controller.serving.health import STALLED_SECONDS, health_routes
from elasticdl.controller.serving.http_server import HttpServer, Response


def get(server: HttpServer, path: str, body: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", data=body) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(age: float = 0.0, unsynced: tuple[str, ...] = ()) -> HttpServer:
    routes = health_routes(loop_age=lambda: age, unsynced=lambda: list(unsynced))
    return HttpServer(bind="127.0.0.1", port=0, gets=routes)


def test_synced_controller_is_live_and_ready() -> None:
    with health() as server:
        assert get(server, "/healthz") == (200, "ok\n")
        assert get(server, "/readyz?verbose") == (200, "ok\n")


def test_kinds_that_are_not_listed_yet_are_named() -> None:
    with health(unsynced=("pods",)) as server:
        assert get(server, "/readyz") == (503, "Not listed yet: pods.\n")
        assert get(server, "/healthz")[0] == 200


def test_loop_that_hangs_fails_the_liveness_probe() -> None:
    with health(age=STALLED_SECONDS + 1) as server:
        assert get(server, "/healthz") == (503, "The loop has not come round for 61 s.\n")


def test_unknown_path_is_not_found() -> None:
    with health() as server:
        assert get(server, "/elsewhere")[0] == HTTPStatus.NOT_FOUND
        assert get(server, "/healthz", body=b"{}")[0] == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("length", ["\u00b2", "-1", "9" * 5000, "1e3"])
def test_length_that_is_no_number_is_refused(length: str) -> None:
    with HttpServer(bind="127.0.0.1", port=0, posts={"/": echo}) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        connection.close()


def test_failure_of_a_route_is_an_internal_error_and_not_the_end() -> None:
    def fail(_: bytes) -> Response:
        raise ValueError("broken")

    with HttpServer(bind="127.0.0.1", port=0, posts={"/": fail, "/echo": echo}) as server:
        assert get(server, "/", body=b"{}")[0] == HTTPStatus.INTERNAL_SERVER_ERROR
        assert get(server, "/echo", body=b"words") == (200, "words\n")


def echo(body: bytes) -> Response:
    return Response.text(body.decode())
