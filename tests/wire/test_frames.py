"""Frames over real sockets: numbers arrive as sent, callers without the token are rejected, gRPC shares the port."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire.channel import add_port, new_server, open_channel
from elasticdl.wire.frames import OK, Connection, ConnectionLost, connect
from elasticdl.wire.port_multiplexer import Front
from elasticdl.wire.security import NotTrusted, Security

ECHO, FAIL = 1, 2


def echo(connection: Connection) -> None:
    while True:
        try:
            frame = connection.receive()
        except ConnectionLost:
            return
        if frame.kind == FAIL:
            connection.send(13, b"it went wrong")
        else:
            connection.send(OK, frame.head, [frame.body])


class Server:
    def __init__(self, security: Security | None = None) -> None:
        self.grpc = new_server("secret", threads=2)
        handler = grpc.method_handlers_generic_handler(
            "test.Test", {"Call": grpc.unary_unary_rpc_method_handler(lambda message, context: message * 2)}
        )
        self.grpc.add_generic_rpc_handlers((handler,))
        behind = add_port(self.grpc, "127.0.0.1:0", security=security)
        self.grpc.start()
        self.front = Front("127.0.0.1", 0, token="secret", security=security)
        self.front.serve(echo, behind)
        self.address = f"127.0.0.1:{self.front.port}"

    def stop(self) -> None:
        self.grpc.stop(None).wait()
        self.front.stop()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(security: Security | None = None) -> Server:
        started.append(Server(security))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def security_of(made: Credentials) -> Security:
    return Security(
        ca=made.ca_crt.encode(),
        name=tls_name("mine"),
        certificate=made.tls_crt.encode(),
        key=made.tls_key.encode(),
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_large_bodies_in_parts_arrive_whole(serve: Callable[..., Server], encrypted: bool) -> None:
    security = security_of(Credentials.make("mine")) if encrypted else None
    connection = connect(serve(security).address, "secret", security=security)
    parts = [bytes([number % 251]) * (number * 997 % 70_000) for number in range(700)]
    # The answer comes while the question is still being sent.
    sending = threading.Thread(
        target=connection.send, args=(ECHO, b"head", [memoryview(one) for one in parts])
    )
    sending.start()
    frame = connection.receive()
    sending.join()
    assert (frame.kind, frame.head) == (OK, b"head")
    assert frame.body == b"".join(parts)
    connection.close()


def test_a_body_goes_where_it_is_wanted(serve: Callable[..., Server]) -> None:
    connection = connect(serve().address, "secret")
    first, second = bytearray(3), bytearray(4)
    connection.send(ECHO, b"", [b"abcdefg"])
    assert len(connection.receive(into=[memoryview(first), memoryview(second)]).body) == 0
    assert (bytes(first), bytes(second)) == (b"abc", b"defg")
    connection.send(ECHO, b"", [b"abcdefgh"])
    with pytest.raises(ConnectionLost, match="7 were expected"):
        connection.receive(into=[memoryview(first), memoryview(second)])
    connection.close()


def test_failure_without_body_keeps_connection_usable(serve: Callable[..., Server]) -> None:
    connection = connect(serve().address, "secret")
    connection.send(FAIL)
    frame = connection.receive(into=[memoryview(bytearray(5))])
    assert (frame.kind, frame.head) == (13, b"it went wrong")
    connection.send(ECHO, b"x")
    assert connection.receive().head == b"x"
    connection.close()


def test_wrong_token_raises_not_trusted(serve: Callable[..., Server]) -> None:
    with pytest.raises(NotTrusted, match="token is missing or wrong"):
        connect(serve().address, "guessed")


def test_overlong_token_closes_the_connection(serve: Callable[..., Server]) -> None:
    server = serve()
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as caller:
        # Longer than any token.
        caller.sendall(b"EDL-FRM1" + b"\0" * 4 + (1 << 20).to_bytes(4, "little") + b"\0" * 8)
        assert caller.recv(100) == b""
    connection = connect(server.address, "secret")
    connection.send(ECHO, b"still there")
    assert connection.receive().head == b"still there"
    connection.close()


def test_server_of_another_authority_is_rejected(serve: Callable[..., Server]) -> None:
    theirs, mine = security_of(Credentials.make("mine")), security_of(Credentials.make("mine"))
    with pytest.raises(NotTrusted, match="not of this job"):
        connect(serve(theirs).address, "secret", security=mine)


def test_unencrypted_server_receives_no_token(serve: Callable[..., Server]) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        connect(serve().address, "secret", security=security_of(Credentials.make("mine")))


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_port_is_shared_with_grpc(serve: Callable[..., Server], encrypted: bool) -> None:
    security = security_of(Credentials.make("mine")) if encrypted else None
    server = serve(security)
    with open_channel(server.address, "secret", security=security) as channel:
        call = channel.unary_unary("/test.Test/Call", None, None)
        assert call(b"ab" * 100_000, timeout=60) == b"ab" * 200_000
    with open_channel(server.address, "wrong", security=security) as channel:
        call = channel.unary_unary("/test.Test/Call", None, None)
        with pytest.raises(grpc.RpcError) as error:
            call(b"ab", timeout=60)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("encrypted", [False, True])
def test_receive_ends_when_callback_raises(serve: Callable[..., Server], encrypted: bool) -> None:
    class Enough(Exception):
        pass

    def waiting() -> None:
        raise Enough

    security = security_of(Credentials.make("mine")) if encrypted else None
    server = serve(security)
    connection = connect(server.address, "secret", security=security)
    connection.close()
    connection = connect(server.address, "secret", security=security, waiting=lambda: None)
    connection.waiting = waiting
    with pytest.raises(Enough):
        connection.receive()
    connection.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_stopping_ends_connections(serve: Callable[..., Server], encrypted: bool) -> None:
    security = security_of(Credentials.make("mine")) if encrypted else None
    server = serve(security)
    connection = connect(server.address, "secret", security=security)
    server.front.stop()
    with pytest.raises(ConnectionLost):
        connection.receive()
    connection.close()
    with pytest.raises(OSError, match="refused"):
        connect(server.address, "secret")


@pytest.mark.parametrize("encrypted", [False, True])
def test_close_from_another_thread_ends_receive(serve: Callable[..., Server], encrypted: bool) -> None:
    security = security_of(Credentials.make("mine")) if encrypted else None
    connection = connect(serve(security).address, "secret", security=security)
    ended: list[BaseException] = []

    def hear() -> None:
        with pytest.raises(ConnectionLost) as error:
            connection.receive()
        ended.append(error.value)

    hearing = threading.Thread(target=hear)
    hearing.start()
    connection.interrupt()
    hearing.join(60)
    assert len(ended) == 1
    connection.close()


def test_sending_and_receiving_take_turns_where_it_is_encrypted(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL can do only one of them at a time, and does not say so when it is asked for both."""
    inside: dict[int, int] = {}
    overlaps = []
    counting = threading.Lock()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def one(self: ssl.SSLSocket, *arguments: Any) -> Any:
            with counting:
                inside[id(self)] = inside.get(id(self), 0) + 1
                if inside[id(self)] > 1:
                    overlaps.append(arguments)
            try:
                return call(self, *arguments)
            finally:
                with counting:
                    inside[id(self)] -= 1

        return one

    for name in ("send", "recv_into"):
        monkeypatch.setattr(ssl.SSLSocket, name, counted(getattr(ssl.SSLSocket, name)))
    security = security_of(Credentials.make("mine"))
    connection = connect(serve(security).address, "secret", security=security)
    frames = 300

    def send() -> None:
        for number in range(frames):
            connection.send(ECHO, str(number).encode(), [bytes(50_000)])

    sending = threading.Thread(target=send)
    sending.start()
    heard = [connection.receive() for _ in range(frames)]
    sending.join()
    assert [frame.head for frame in heard] == [str(number).encode() for number in range(frames)]
    assert not overlaps
    connection.close()
