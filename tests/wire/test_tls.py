"""Connections are encrypted where the environment names the job's authority, and only its own servers are believed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire.channel import add_port, new_aio_server, new_server, open_aio_channel, open_channel
from elasticdl.wire.http2.server import UnaryServer
from elasticdl.wire.security import NotTrusted, Security, check_peer

ECHO = "/test.Echo/Once"
BIG = bytes(8 << 20)

MINE = Credentials.make("mine")
OTHER = Credentials.make("mine")


def environment(folder: Path, made: Credentials, job: str = "mine") -> dict[str, str]:
    """That of a node which serves."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.files().items():
        (folder / name).write_text(text)
    return {
        "ELASTICDL_CA_FILE": str(folder / "ca.crt"),
        "ELASTICDL_TLS_NAME": tls_name(job),
        "ELASTICDL_CERT_FILE": str(folder / "tls.crt"),
        "ELASTICDL_KEY_FILE": str(folder / "tls.key"),
    }


def security(folder: Path, made: Credentials, job: str = "mine") -> Security:
    found = Security.of_environment(environment(folder, made, job))
    assert found is not None
    return found


def handlers(once: Any) -> tuple[grpc.GenericRpcHandler[Any, Any]]:
    return (
        grpc.method_handlers_generic_handler(
            "test.Echo", {"Once": grpc.unary_unary_rpc_method_handler(once)}
        ),
    )


Serve = Callable[[Security | None], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def start(with_security: Security | None) -> str:
        server = new_server("secret", threads=2)
        server.add_generic_rpc_handlers(handlers(lambda request, context: request))
        port = add_port(server, "127.0.0.1:0", security=with_security)
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()


def refusal(channel: grpc.Channel) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(ECHO, None, None)(b"hello", timeout=30)
    return error.value


def test_server_of_the_jobs_authority_is_accepted(serve: Serve, tmp_path: Path) -> None:
    mine = security(tmp_path, MINE)
    address = serve(mine)
    check_peer(address, security=mine)
    with open_channel(address, "secret", security=mine) as channel:
        assert channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
        assert channel.unary_unary(ECHO, None, None)(BIG) == BIG


def test_the_environment_alone_decides(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(tmp_path, MINE).items():
        monkeypatch.setenv(name, value)
    address = serve(None)
    check_peer(address)
    with open_channel(address, "secret") as channel:
        assert channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
    for name in environment(tmp_path, MINE):
        monkeypatch.delenv(name)
    with open_channel(address, "secret") as channel:
        assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE


def test_another_authority_is_refused(serve: Serve, tmp_path: Path) -> None:
    address = serve(security(tmp_path / "other", OTHER))
    mine = security(tmp_path / "mine", MINE)
    with open_channel(address, "secret", security=mine) as channel:
        error = refusal(channel)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")
    with pytest.raises(NotTrusted, match=r"is not elasticdl-mine: .*ELASTICDL_CA_FILE"):
        check_peer(address, security=mine)


def test_server_certificate_of_another_job_is_refused(serve: Serve, tmp_path: Path) -> None:
    address = serve(security(tmp_path / "mine", MINE))
    expected = security(tmp_path / "mine", MINE, job="another")
    with open_channel(address, "secret", security=expected) as channel:
        assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(NotTrusted, match=r"is not elasticdl-another: .*mismatch"):
        check_peer(address, security=expected)


def test_a_server_that_does_not_encrypt_is_refused(serve: Serve, tmp_path: Path) -> None:
    address = serve(None)
    mine = security(tmp_path, MINE)
    with open_channel(address, "secret", security=mine) as channel:
        assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(NotTrusted, match="does not encrypt"):
        check_peer(address, security=mine)


def test_a_caller_that_does_not_encrypt_is_refused(serve: Serve, tmp_path: Path) -> None:
    address = serve(security(tmp_path, MINE))
    with open_channel(address, "secret") as channel:
        assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE


def test_encryption_does_not_replace_the_token(serve: Serve, tmp_path: Path) -> None:
    mine = security(tmp_path, MINE)
    with open_channel(serve(mine), "wrong", security=mine) as channel:
        error = refusal(channel)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "token" in (error.details() or "")


def test_check_peer_without_server_passes(tmp_path: Path) -> None:
    check_peer("127.0.0.1:1", security=security(tmp_path, MINE))


async def _asyncio_both_ends(folder: Path) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    mine, other = security(folder / "mine", MINE), security(folder / "other", OTHER)
    server, public = new_aio_server("secret"), UnaryServer()
    ports = [add_port(server, "127.0.0.1:0", security=mine)]
    ports.append(public.add_port("127.0.0.1:0"))
    for each in (server, public):
        each.add_generic_rpc_handlers(handlers(echo))
        await each.start()
    address = f"127.0.0.1:{ports[0]}"
    try:
        async with open_aio_channel(address, "secret", security=mine) as channel:
            assert await channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
        for token, believed, code in (
            ("wrong", mine, grpc.StatusCode.UNAUTHENTICATED),
            ("secret", other, grpc.StatusCode.UNAVAILABLE),
            ("secret", None, grpc.StatusCode.UNAVAILABLE),
        ):
            async with open_aio_channel(address, token, security=believed) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await channel.unary_unary(ECHO, None, None)(b"hello", timeout=30)
                assert error.value.code() is code
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
            assert await channel.unary_unary(ECHO, None, None)(b"hello") == b"hello"
    finally:
        await server.stop(None)
        await public.stop(None)


def test_asyncio_server_and_channel_and_a_public_port(tmp_path: Path) -> None:
    asyncio.run(_asyncio_both_ends(tmp_path))


def test_half_an_environment_is_an_error(tmp_path: Path) -> None:
    given = environment(tmp_path, MINE)
    assert Security.of_environment({}) is None
    with pytest.raises(ValueError, match="ELASTICDL_TLS_NAME"):
        Security.of_environment({**given, "ELASTICDL_TLS_NAME": ""})
    with pytest.raises(ValueError, match=r"ELASTICDL_CA_FILE is .*nowhere"):
        Security.of_environment({**given, "ELASTICDL_CA_FILE": str(tmp_path / "nowhere")})
    client = {name: given[name] for name in ("ELASTICDL_CA_FILE", "ELASTICDL_TLS_NAME")}
    only_client = Security.of_environment(client)
    assert only_client is not None
    with pytest.raises(ValueError, match="ELASTICDL_CERT_FILE and ELASTICDL_KEY_FILE"):
        only_client.server_credentials()
