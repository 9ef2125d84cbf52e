"""HTTP to one API server: the only module that knows the HTTP library.

The rest of the package sees `Response`, `ResponseStream` and `TransportError`, so that another library can be chosen by
rewriting this file (docs/decisions/0034-http-client.md). No retries here: `api_connection` has the retry policy.

Failure modes
    A connection that is refused, breaks or times out raises `TransportError`, also in the middle of a stream. A missing
    library raises `UserError` at the first request.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.platforms.kubernetes.kubeconfig import Access

if TYPE_CHECKING:
    import httpx

# The library logs every request at level INFO under these names.
LOGGERS = ("httpx", "httpcore")
_REQUEST_SECONDS = 30.0
_COMMAND_LINE = "httpx._main"


class TransportError(Exception):
    """No complete response: the connection was refused, broke or timed out."""


@dataclass(frozen=True, kw_only=True)
class Response:
    status: int
    # The text of the status line after the number.
    phrase: str
    # By name in lower case.
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class ResponseStream:
    """A response whose body is read while it arrives."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code

    async def read(self) -> Response:
        """Waits for the whole body."""
        with _translated_errors():
            await self._response.aread()
        return _response(self._response)

    async def aiter_lines(self) -> AsyncIterator[str]:
        lines = self._response.aiter_lines()
        while True:
            with _translated_errors():
                line = await anext(lines, None)
            if line is None:
                return
            yield line

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        chunks = self._response.aiter_bytes()
        while True:
            with _translated_errors():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk


class HttpTransport:
    """Connections to the server of an `Access`, opened as they are needed. To be used inside one event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client: httpx.AsyncClient | None = None
        # Clients whose connections were made with a certificate that has been replaced. Streams may still read from
        # them.
        self._retired: list[httpx.AsyncClient] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Response:
        client = self._connected()
        with _translated_errors():
            response = await client.request(
                method,
                path,
                params=dict(query),
                content=body,
                headers=dict(headers),
                extensions=self._extensions(),
            )
        return _response(response)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], read_seconds: float | None
    ) -> AsyncIterator[ResponseStream]:
        """A GET. `read_seconds`: how long the server may send nothing; None: for as long as it likes."""
        client = self._connected()
        request = client.build_request(
            "GET",
            path,
            params=dict(query),
            headers=dict(headers),
            timeout=http_library().Timeout(_REQUEST_SECONDS, read=read_seconds),
            extensions=self._extensions(),
        )
        with _translated_errors():
            response = await client.send(request, stream=True)
        try:
            yield ResponseStream(response)
        finally:
            await response.aclose()

    def reconnect(self) -> None:
        """Opens new connections from now on; streams that are being read go on."""
        if self._client is not None:
            self._retired.append(self._client)
            self._client = None

    async def close(self) -> None:
        clients = [*self._retired, *([self._client] if self._client is not None else [])]
        self._retired, self._client = [], None
        for client in clients:
            await client.aclose()

    def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            library = http_library()
            # Pods are created together, and each watch keeps a connection: no limit of ours on them.
            limits = library.Limits(max_connections=None, max_keepalive_connections=20)
            self._client = library.AsyncClient(
                base_url=self._access.server,
                verify=self._access.tls,
                headers={"User-Agent": "elasticdl", "Accept": "application/json"},
                limits=limits,
                timeout=_REQUEST_SECONDS,
                trust_env=not self._access.inside,
            )
        return self._client

    def _extensions(self) -> dict[str, Any]:
        name = self._access.server_name
        return {"sni_hostname": name} if name else {}


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    library = http_library()
    try:
        yield
    except (library.TransportError, library.StreamError) as error:
        raise TransportError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


def _response(response: httpx.Response) -> Response:
    return Response(
        status=response.status_code,
        phrase=response.reason_phrase,
        headers={name.lower(): value for name, value in response.headers.items()},
        body=response.content,
    )


def http_library() -> Any:
    """The library without its command line, which takes longer to import than the rest of it."""
    skips_command_line = "httpx" not in sys.modules and _COMMAND_LINE not in sys.modules
    if skips_command_line:
        sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("httpx")
    except ModuleNotFoundError as error:
        raise UserError(
            f"Jobs on Kubernetes need the package {error.name}.", hint=install_command("kubernetes")
        ) from error
    finally:
        if skips_command_line:
            del sys.modules[_COMMAND_LINE]
