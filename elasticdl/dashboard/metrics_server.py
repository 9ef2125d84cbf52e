"""Serves metrics on a port for scraping by Prometheus.

Each scrape reads the job's state again: an unreachable master is an answer too (503), and no reason to end.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from elasticdl.errors import UserError

PATH = "/metrics"
# Each connection has a thread, and a Prometheus asks at once.
_PATIENCE_SECONDS = 10.0


class MetricsServer:
    """Listens from the start, answers in `run`."""

    def __init__(
        self,
        read: Callable[[], str],
        *,
        bind: str,
        port: int,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """`read` gives the metrics of this moment. Port 0: any free one.

        A client that neither sends nor reads for `patience_seconds` is disconnected.
        """
        try:
            self._server = ThreadingHTTPServer((bind, port), _handler(read, patience_seconds))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"Metrics cannot be served at {bind}:{port}: {reason}.",
                hint="Choose another --port, or another --bind.",
            ) from error
        self._server.daemon_threads = True
        self.address = f"http://{bind}:{self._server.server_address[1]}{PATH}"

    def run(self) -> None:
        """Serves until interrupted, or until `close` in another thread."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def close(self) -> None:
        self._server.shutdown()


def _handler(read: Callable[[], str], patience_seconds: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = patience_seconds
        # Hides the Python version.
        server_version = "elasticdl"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self._say(HTTPStatus.NOT_FOUND, f"There is only {PATH}.\n", "text/plain; charset=utf-8")
                return
            try:
                text = read()
            except UserError as error:
                self._say(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain; charset=utf-8")
                return
            self._say(HTTPStatus.OK, text, CONTENT_TYPE_PLAIN_0_0_4)

        def _say(self, status: HTTPStatus, text: str, content_type: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Logs nothing: a line per scrape is too much."""

    return Handler
