"""A small HTTP server: a route for each path, each request in a thread of its own.

The standard library's server, because a probe, a scrape and an admission review are one small request each. Handlers
run beside the event loop of the controller, so they read what is replaced as a whole and never what is being changed.

Failure modes
    A client that sends nothing, or does not finish its TLS handshake, is dropped after `timeout_seconds` and delays no
    other: the handshake belongs to the request's thread. A body beyond `MAX_BODY_BYTES` is refused unread.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from elasticdl.errors import UserError

log = logging.getLogger("elasticdl.controller")

TEXT = "text/plain; charset=utf-8"
# The API server accepts objects of 1.5 MiB; a review holds the old and the new one.
MAX_BODY_BYTES = 8 * 1024 * 1024
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Response:
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = TEXT

    @classmethod
    def text(cls, words: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
        return cls(status=status, body=f"{words}\n".encode())


# The body of a request in, the response out.
Route = Callable[[bytes], Response]


class HttpServer:
    """`gets` and `posts`: routes by path. Port 0: any free one. Listens from the start, answers from `start` on."""

    def __init__(
        self,
        *,
        bind: str,
        port: int,
        gets: Mapping[str, Route] | None = None,
        posts: Mapping[str, Route] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        routes = {"GET": dict(gets or {}), "POST": dict(posts or {})}
        try:
            self._server = _server_class(bind)((bind, port), _handler(routes, timeout_seconds))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"The controller cannot listen at {bind}:{port}: {reason}.") from error
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _server_class(bind: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in bind else socket.AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that break off (a scan, a probe without TLS) are not worth a traceback."""
            log.debug("A request of %s failed", client_address, exc_info=True)

    return Server


def _handler(
    routes: Mapping[str, Mapping[str, Route]], timeout_seconds: float
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = timeout_seconds
        protocol_version = "HTTP/1.1"
        server_version = "elasticdl"
        sys_version = ""

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            path = self.path.partition("?")[0]
            route = routes[method].get(path)
            if route is None:
                self.close_connection = True
                self._send(Response.text(f"There is no {path}.", HTTPStatus.NOT_FOUND))
                return
            length = self.headers.get("Content-Length") or "0"
            is_number = length.isascii() and length.isdigit() and len(length) <= len(str(MAX_BODY_BYTES))
            if not is_number or int(length) > MAX_BODY_BYTES:
                self.close_connection = True
                self._send(Response.text("The body is too large.", HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
                return
            body = self.rfile.read(int(length))
            try:
                response = route(body)
            except Exception:
                log.exception("Cannot answer %s %s", method, path)
                response = Response.text("An internal error; see the log.", HTTPStatus.INTERNAL_SERVER_ERROR)
            self._send(response)

        def _send(self, response: Response) -> None:
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """No line for each probe."""

    return Handler
