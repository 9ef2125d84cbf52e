"""A server for unary gRPC calls, in the place of `grpc.aio.server`: the same services are added to it.

A call costs a fraction of what it costs there. It serves no streams and no TLS.

A method runs outside any task until it first waits, so until then it must not use what needs the current task, such as
`asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine, Generator, Iterable
from typing import Any, NamedTuple, NoReturn

import grpc
from google.protobuf.message import DecodeError

from elasticdl.wire.http2.connection import Connection, Limits
from elasticdl.wire.http2.header_blocks import Headers

log = logging.getLogger("elasticdl.wire")

# Connections that the kernel keeps until they are accepted.
_BACKLOG = 1024
# How long a stopping server waits for cancelled calls.
_CANCEL_SECONDS = 5.0


class CallAborted(Exception):
    """Ends a call with a status (`CallContext.abort`)."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallContext:
    """What a method may ask of its call: the part of `grpc.aio.ServicerContext` that is used here."""

    __slots__ = ("_connection", "_headers", "_stream")

    def __init__(self, connection: Connection, stream: int, headers: Headers) -> None:
        self._connection = connection
        self._stream = stream
        self._headers = headers

    def peer(self) -> str:
        return self._connection.peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(pair for pair in self._headers.items() if not pair[0].startswith(":"))

    def done(self) -> bool:
        return not self._connection.is_open(self._stream)

    def cancelled(self) -> bool:
        return self.done()

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise CallAborted(code, details)


class _Details(NamedTuple):
    """What gRPC's handlers are found by; gRPC itself has only an abstract class for it."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...]


class UnaryServer:
    """Calls are answered from `start` on, in the event loop."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.is_stopping = False
        self.held_bytes = 0
        self._limits = limits or Limits()
        self._services: list[Any] = []
        # By path. Others than those of the services are not kept.
        self._methods: dict[str, Any] = {}
        self._sockets: list[socket.socket] = []
        self._listening: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._calls: set[asyncio.Task[None]] = set()

    # -- as gRPC's servers -----------------------------------------------------------------------------------

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._services += handlers

    def add_port(self, address: str) -> int:
        """Listens at HOST:PORT, port 0 for any; returns the port. `RuntimeError`: it is taken."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            # On an address for both families, both.
            has_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
            listening = socket.create_server(
                (host, int(port)), family=family, backlog=_BACKLOG, dualstack_ipv6=has_both
            )
        except OSError as error:
            raise RuntimeError(f"{address} cannot be listened at: {error.strerror}") from error
        listening.setblocking(False)
        self._sockets.append(listening)
        bound: int = listening.getsockname()[1]
        return bound

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            server = await loop.create_server(
                lambda: Connection(self, self._limits), sock=each, backlog=_BACKLOG
            )
            self._listening.append(server)
        self._sockets = []

    async def stop(self, grace: float | None) -> None:
        """Takes no more calls, and ends those under way after `grace` seconds. Stopping twice is harmless."""
        self.is_stopping = True
        for listening in self._listening:
            listening.close()
        for opened in self._sockets:
            opened.close()
        for connection in self._connections:
            connection.drain()
        if self._calls and grace:
            await asyncio.wait(self._calls, timeout=grace)
        for connection in self._connections.copy():
            connection.close()
        # For those that were cancelled to end, and for sockets to be closed.
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CANCEL_SECONDS)
        await asyncio.sleep(0)

    # -- calls -----------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._limits.connections:
            return False
        self._connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def begin(
        self, connection: Connection, stream: int, headers: Headers, message: bytes
    ) -> WaitingCall | None:
        path = headers.get(":path", "")
        method = self._methods.get(path) or self._find_method(path)
        if method is None:
            connection.fail(stream, grpc.StatusCode.UNIMPLEMENTED, "There is no such method.")
            return None
        try:
            request = method.request_deserializer(message) if method.request_deserializer else message
        except DecodeError as error:
            log.warning("A request of %s from %s cannot be decoded: %s", path, connection.peer, error)
            connection.fail(stream, grpc.StatusCode.INTERNAL, "The request cannot be decoded.")
            return None
        context = CallContext(connection, stream, headers)
        call = self._call(method, request, context, connection, stream)
        # Most calls wait for nothing. A task would cost them another round of the event loop.
        try:
            waited_for = call.send(None)
        except (StopIteration, asyncio.CancelledError):
            return None
        task = asyncio.get_running_loop().create_task(_resume(call, waited_for))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return WaitingCall(task)

    def _find_method(self, path: str) -> Any:
        for service in self._services:
            method = service.service(_Details(method=path, invocation_metadata=()))
            if method is not None and method.unary_unary is not None:
                self._methods[path] = method
                return method
        return None

    async def _call(
        self, method: Any, request: Any, context: CallContext, connection: Connection, stream: int
    ) -> None:
        try:
            response = await method.unary_unary(request, context)
            message = method.response_serializer(response) if method.response_serializer else response
        except CallAborted as abort:
            connection.fail(stream, abort.code, str(abort))
        except asyncio.CancelledError:
            connection.fail(stream, grpc.StatusCode.CANCELLED, "The call was cancelled.")
            raise
        except Exception as error:
            log.exception("A call of %s has failed", connection.peer)
            connection.fail(stream, grpc.StatusCode.UNKNOWN, f"Unexpected {type(error).__name__}: {error}")
        else:
            connection.reply(stream, message)


class WaitingCall:
    """A call that waits for something."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def cancel(self) -> None:
        # Later, for a task that is cancelled before its first step would never throw this into the method.
        asyncio.get_running_loop().call_soon(self._task.cancel)


async def _resume(coroutine: Coroutine[Any, Any, None], waited_for: Any) -> None:
    """The rest of a coroutine that waits for a future already."""
    await _Rest(coroutine, waited_for)


class _Rest:
    def __init__(self, coroutine: Coroutine[Any, Any, None], waited_for: Any) -> None:
        self._coroutine = coroutine
        self._waited_for = waited_for

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._waited_for
        try:
            while True:
                try:
                    result = yield waited_for
                except BaseException as error:  # noqa: BLE001 - a cancellation, or the error of what it waits for
                    waited_for = self._coroutine.throw(error)
                else:
                    waited_for = self._coroutine.send(result)
        except StopIteration:
            return
