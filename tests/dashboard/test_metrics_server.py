"""Metrics on a port: read again for each scrape; a job that cannot be read is an answer, not an end."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from elasticdl.dashboard.metrics_server import MetricsServer
from elasticdl.errors import UserError

Start = Callable[..., MetricsServer]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[tuple[MetricsServer, threading.Thread]] = []

    def begin(read: Callable[[], str], **options: float) -> MetricsServer:
        server = MetricsServer(read, bind="127.0.0.1", port=0, **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        return server

    yield begin
    for server, thread in running:
        server.close()
        thread.join()


def get(address: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(address) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_each_scrape_reads_the_metrics_again(start: Start) -> None:
    asked = iter(range(10))
    server = start(lambda: f"elasticdl_step {next(asked)}\n")
    assert get(server.address) == (200, "text/plain; version=0.0.4; charset=utf-8", "elasticdl_step 0\n")
    assert get(f"{server.address}?debug=1")[2] == "elasticdl_step 1\n"


def test_a_job_that_does_not_answer(start: Start) -> None:
    answers: Iterator[str | UserError] = iter(
        [UserError("The master does not answer."), "elasticdl_step 2\n"]
    )

    def read() -> str:
        answer = next(answers)
        if isinstance(answer, UserError):
            raise answer
        return answer

    server = start(read)
    code, _, text = get(server.address)
    assert (code, text) == (503, "The master does not answer.\n")
    assert get(server.address)[0] == 200


def test_nothing_else_is_there(start: Start) -> None:
    server = start(lambda: "")
    code, _, text = get(server.address.replace("/metrics", "/other"))
    assert (code, text) == (404, "There is only /metrics.\n")


@pytest.mark.parametrize("said", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: here\r\n"])
def test_caller_without_request_is_disconnected(start: Start, said: bytes) -> None:
    server = start(lambda: "elasticdl_step 1\n", patience_seconds=0.05)
    place = urllib.parse.urlsplit(server.address)
    assert place.port is not None
    connection = socket.create_connection((place.hostname, place.port), timeout=20)
    # Where this comes late, it is closed already.
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(said)
        assert connection.recv(1000) == b""


def test_a_port_that_is_taken(start: Start) -> None:
    server = start(lambda: "")
    port = int(server.address.rsplit(":", 1)[1].partition("/")[0])
    with pytest.raises(UserError, match=f"cannot be served at 127.0.0.1:{port}"):
        MetricsServer(lambda: "", bind="127.0.0.1", port=port)
