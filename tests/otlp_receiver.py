"""A collector that keeps what it gets: an HTTP server for OTLP as JSON."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(kw_only=True)
class Collector:
    url: str
    spans: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def named(self, prefix: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(prefix)]


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """As Python has them; whole numbers are text in JSON."""
    found = {}
    for entry in span.get("attributes", []):
        ((kind, value),) = entry["value"].items()
        found[entry["key"]] = int(value) if kind == "intValue" else value
    return found


@contextlib.contextmanager
def collector(*, status: int = 200) -> Iterator[Collector]:
    """Runs it until the end of the block. `status`: what it answers to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            if status == 200:
                for each in json.loads(body)["resourceSpans"]:
                    running.resources.append(each["resource"])
                    for scope in each["scopeSpans"]:
                        running.spans.extend(scope["spans"])
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Prints nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Collector(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
