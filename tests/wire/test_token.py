"""A server answers only callers with the job's token; both forms of server and of channel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticdl.wire.channel import (
    SERVER_OPTIONS,
    AioTokenInterceptor,
    TokenInterceptor,
    open_aio_channel,
    open_channel,
    read_token,
)

ECHO = "/test.Echo/Once"
COUNT = "/test.Echo/Count"
BIG = bytes(8 << 20)  # twice what gRPC allows by itself


def echo(request: bytes, context: Any) -> bytes:
    return request


def count(request: bytes, context: Any) -> Iterator[bytes]:
    yield from (b"1", b"2", b"3")


async def aio_echo(request: bytes, context: Any) -> bytes:
    return request


async def aio_count(request: bytes, context: Any) -> Any:
    for number in (b"1", b"2", b"3"):
        yield number


def handlers(once: Any, many: Any) -> tuple[grpc.GenericRpcHandler[Any, Any]]:
    return (
        grpc.method_handlers_generic_handler(
            "test.Echo",
            {
                "Once": grpc.unary_unary_rpc_method_handler(once),
                "Count": grpc.unary_stream_rpc_method_handler(many),
            },
        ),
    )


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(
        futures.ThreadPoolExecutor(2), interceptors=[TokenInterceptor("secret")], options=SERVER_OPTIONS
    )
    server.add_generic_rpc_handlers(handlers(echo, count))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_threaded_server_answers_the_token(address: str) -> None:
    with open_channel(address, "secret") as channel:
        assert channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
        assert list(channel.unary_stream(COUNT, None, None)(b"")) == [b"1", b"2", b"3"]


def test_large_message_passes_channel(address: str) -> None:
    with open_channel(address, "secret") as channel:
        assert channel.unary_unary(ECHO, None, None)(BIG) == BIG


@pytest.mark.parametrize("token", ["wrong", "secre", "secret2"])
def test_threaded_server_refuses_another_token(address: str, token: str) -> None:
    with open_channel(address, token) as channel:
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary(ECHO, None, None)(b"hello")
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as error:
            list(channel.unary_stream(COUNT, None, None)(b""))
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_threaded_server_refuses_no_token(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary(ECHO, None, None)(b"hello")
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_unknown_methods_are_reported_only_with_the_token(address: str) -> None:
    for token, code in (
        ("secret", grpc.StatusCode.UNIMPLEMENTED),
        ("wrong", grpc.StatusCode.UNAUTHENTICATED),
    ):
        with open_channel(address, token) as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/test.Echo/Nothing", None, None)(b"")
            assert error.value.code() is code


async def _asyncio_both_ends() -> None:
    server = grpc.aio.server(interceptors=[AioTokenInterceptor("secret")], options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(handlers(aio_echo, aio_count))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with open_aio_channel(address, "secret") as channel:
            assert await channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
            assert [number async for number in channel.unary_stream(COUNT, None, None)(b"")] == [
                b"1",
                b"2",
                b"3",
            ]
        async with open_aio_channel(address, "wrong") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(ECHO, None, None)(b"hello")
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.aio.AioRpcError) as error:
                [number async for number in channel.unary_stream(COUNT, None, None)(b"")]
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await server.stop(None)


def test_token_is_checked_by_asyncio_server() -> None:
    asyncio.run(_asyncio_both_ends())


def test_a_taken_port_is_an_error(address: str) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), options=SERVER_OPTIONS)
    with pytest.raises(RuntimeError):
        server.add_insecure_port(address)


def test_token_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert read_token(file) == "secret"
    file.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        read_token(file)


def test_an_empty_token_is_refused_everywhere() -> None:
    with pytest.raises(ValueError, match="every caller"):
        TokenInterceptor("")
    with pytest.raises(ValueError, match="every caller"):
        AioTokenInterceptor("")
    with pytest.raises(ValueError, match="every caller"):
        open_channel("127.0.0.1:1", "")
