"""Connections between the processes of a job: how to open one, and how a server authenticates its callers.

Every job has its own token. A caller sends it with each call as `authorization: Bearer TOKEN`; a server
checks it before anything else and answers UNAUTHENTICATED to callers without it. Both ends are here, in
gRPC's threaded form and in its asyncio form, together with the settings that all our connections share. The environment
decides whether they are encrypted (`security.py`).
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import grpc
import grpc.aio

from elasticdl.wire.security import Security

_HEADER = "authorization"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"

_ANY_SIZE = -1
# A machine that vanished closes no connection, nor does a process that was stopped. That is found out within half a
# minute.
_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # A message may be a whole model.
    ("grpc.max_send_message_length", _ANY_SIZE),
    ("grpc.max_receive_message_length", _ANY_SIZE),
    # Nodes talk to nodes: a proxy set up for the internet must not get in between.
    ("grpc.enable_http_proxy", 0),
    *_KEEPALIVE,
    # A process that was killed is back within a second; gRPC's own two minutes would outlast it by far.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name: how long one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # Connections of their own, so that one part of a process closing its channel disturbs no other.
    ("grpc.use_local_subchannel_pool", 1),
)

# What a server takes in one message. Rows and gradients come as frames; what is left are reports, of which the states
# of metrics are the largest. gRPC rejects a longer one by its length, before it reads it.
_LONGEST_REQUEST = 64 << 20

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", _ANY_SIZE),
    ("grpc.max_receive_message_length", _LONGEST_REQUEST),
    # A caller that connects and completes no handshake. gRPC's own limit is two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A connection without a call. Nodes always have one open: the stream of directives. Others connect again.
    ("grpc.max_connection_idle_ms", 60_000),
    # Calls under way on one connection, and the bytes of their headers.
    ("grpc.max_concurrent_streams", 1_000),
    ("grpc.max_metadata_size", 16 << 10),
    # Two servers on one port would each get some of the calls. A taken port is an error instead.
    ("grpc.so_reuseport", 0),
    # The pings of the options above are welcome.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


# Without gRPC's ping for each message, by which it finds out how much of a large one may be under way at once. For the
# master of a hundred workers that was a quarter of its work, and what is said to it is short.
_SMALL_MESSAGES = (("grpc.http2.bdp_probe", 0),)


def read_token(path: str | Path) -> str:
    """The token in a file; raises `ValueError` if there is none in it."""
    token = Path(path).read_text().strip()
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return token


def open_channel(address: str, token: str, *, security: Security | None = None) -> grpc.Channel:
    """A channel whose calls carry the token. It connects when first used, and again whenever it has to.

    `security`: that of the environment, unless given.
    """
    sender = _TokenSender(token)
    security = security or Security.of_environment()
    if security is None:
        return grpc.intercept_channel(grpc.insecure_channel(address, options=CHANNEL_OPTIONS), sender)
    options: Any = (*CHANNEL_OPTIONS, *security.channel_options())
    channel = grpc.secure_channel(address, security.channel_credentials(), options=options)
    return grpc.intercept_channel(channel, sender)


def open_aio_channel(address: str, token: str, *, security: Security | None = None) -> grpc.aio.Channel:
    """The same for an event loop. To be called, used and closed inside one."""
    sender: Any = [_AioUnaryTokenSender(token), _AioStreamTokenSender(token)]
    security = security or Security.of_environment()
    if security is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS, interceptors=sender)
    options: Any = (*CHANNEL_OPTIONS, *security.channel_options())
    credentials = security.channel_credentials()
    return grpc.aio.secure_channel(address, credentials, options=options, interceptors=sender)


def new_server(token: str, *, threads: int, admitted: Callable[[str], None] | None = None) -> grpc.Server:
    """A threaded server that answers callers with the token, so many of them at once.

    `admitted` is called with the peer of each call that has shown the token.
    """
    pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="call")
    return grpc.server(pool, interceptors=[TokenInterceptor(token, admitted)], options=SERVER_OPTIONS)


def new_aio_server(token: str) -> grpc.aio.Server:
    """The same for an event loop. Calls of vanished callers are canceled."""
    options = (*SERVER_OPTIONS, *_KEEPALIVE, *_SMALL_MESSAGES)
    return grpc.aio.server(interceptors=[AioTokenInterceptor(token)], options=options)


def add_port(
    server: grpc.Server | grpc.aio.Server,
    address: str,
    *,
    security: Security | None = None,
) -> int:
    """Makes a server listen at HOST:PORT, port 0 for any; returns the port. `RuntimeError`: it is taken."""
    security = security or Security.of_environment()
    if security is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, security.server_credentials())


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Lets a threaded server answer only callers that send the token."""

    def __init__(self, token: str, admitted: Callable[[str], None] | None = None) -> None:
        self._expected = _credential(token)
        self._admitted = admitted

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Handler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        if not _permitted(self._expected, handler_call_details.invocation_metadata):
            # As one that takes a stream: the message of the call is not read.
            return grpc.stream_unary_rpc_method_handler(_refuse)
        handler = continuation(handler_call_details)
        if self._admitted is None or handler is None or handler.unary_unary is None:
            return handler
        return self._telling(handler, self._admitted)

    def _telling(self, handler: Any, admitted: Callable[[str], None]) -> _Handler:
        def behave(request: Any, context: Any) -> Any:
            admitted(context.peer())
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            behave,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class AioTokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets an asyncio server answer only callers that send the token."""

    def __init__(self, token: str) -> None:
        self._expected = _credential(token)

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        if _permitted(self._expected, handler_call_details.invocation_metadata):
            return await continuation(handler_call_details)
        # As one that takes a stream: the message of the call is not read.
        return grpc.stream_unary_rpc_method_handler(_aio_refuse)


def _credential(token: str) -> str:
    if not token:
        raise ValueError("an empty token would admit every caller")
    return f"Bearer {token}"


def _permitted(expected: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    given = [value for key, value in metadata or () if key == _HEADER]
    # Takes as long for a wrong token as for the right one, so that it cannot be guessed letter by letter.
    return len(given) == 1 and hmac.compare_digest(str(given[0]).encode(), expected.encode())


_REFUSAL = "This job's token is missing or wrong."


def _refuse(requests: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)


async def _aio_refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)


class _CallDetails(NamedTuple):
    """The call details that gRPC's threaded interceptors pass on; gRPC itself has only an abstract class for it."""

    method: str
    timeout: float | None
    metadata: list[tuple[str, str | bytes]]
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _TokenSender(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
):
    def __init__(self, token: str) -> None:
        self._credential = _credential(token)

    def _with_token(self, details: Any) -> _CallDetails:
        return _CallDetails(
            method=details.method,
            timeout=details.timeout,
            metadata=[*(details.metadata or ()), (_HEADER, self._credential)],
            credentials=details.credentials,
            wait_for_ready=details.wait_for_ready,
            compression=getattr(details, "compression", None),
        )

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request)


class _AioTokenSender:
    def __init__(self, token: str) -> None:
        self._credential = _credential(token)

    def _with_token(self, details: Any) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), (_HEADER, self._credential))
        return details._replace(metadata=metadata)


class _AioUnaryTokenSender(_AioTokenSender, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Awaitable[Any]], client_call_details: Any, request: Any
    ) -> Any:
        return await continuation(self._with_token(client_call_details), request)


class _AioStreamTokenSender(_AioTokenSender, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        return await continuation(self._with_token(client_call_details), request)
