"""A registry of images for one test: as much of its protocol as it takes to push an image and to pull it again.

It listens on the loopback of the cluster's network, where tools and nodes take plain HTTP for good enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Its address, for as long as it runs. `folder` is for what is pushed."""
    folder.mkdir()

    class Handler(_Handler):
        place = folder

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Blobs and manifests are files named by their digest; a tag is a file with the digest of its manifest."""

    place: Path
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._give(body=False)

    def do_GET(self) -> None:
        self._give(body=True)

    def do_POST(self) -> None:
        list(self._body())
        self._answer(202, Location=f"{urlsplit(self.path).path}{uuid.uuid4().hex}")

    def do_PATCH(self) -> None:
        path = urlsplit(self.path).path
        with self._file(f"upload-{self._last()}").open("ab") as file:
            for part in self._body():
                file.write(part)
            size = file.tell()
        self._answer(202, Location=path, Range=f"0-{size - 1}")

    def do_PUT(self) -> None:
        data = b"".join(self._body())
        if "/manifests/" in self.path:
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            self._file(digest).write_bytes(data)
            self._file(f"{digest}.type").write_text(self.headers["Content-Type"])
            self._file(f"tag-{self._last()}").write_text(digest)
        else:
            digest = parse_qs(urlsplit(self.path).query)["digest"][0]
            upload = self._file(f"upload-{self._last()}")
            with upload.open("ab") as file:
                file.write(data)
            upload.rename(self._file(digest))
        self._answer(201, Docker_Content_Digest=digest, Location=urlsplit(self.path).path)

    def _give(self, *, body: bool) -> None:
        if self.path.rstrip("/") == "/v2":
            self._answer(200)
            return
        name = self._last()
        tag = self._file(f"tag-{name}")
        digest = tag.read_text() if tag.exists() else name
        file, kind = self._file(digest), self._file(f"{digest}.type")
        if not file.exists():
            self._answer(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind.read_text() if kind.exists() else "application/octet-stream")
        self.send_header("Content-Length", str(file.stat().st_size))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if body:
            with file.open("rb") as content:
                while part := content.read(1 << 20):
                    self.wfile.write(part)

    def _answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            part = self.rfile.read(min(left, 1 << 20))
            left -= len(part)
            yield part

    def _last(self) -> str:
        return urlsplit(self.path).path.rpartition("/")[2]

    def _file(self, name: str) -> Path:
        return self.place / name.replace(":", "-", 1)

    def log_message(self, *words: object) -> None:
        """Logs nothing."""
