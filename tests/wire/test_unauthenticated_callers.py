"""Callers that do not authenticate delay no other caller and cost nothing; nor do those beyond the connection limit."""

from __future__ import annotations

import errno
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import psutil
import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire import port_multiplexer
from elasticdl.wire.channel import add_port, new_server, open_channel
from elasticdl.wire.frames import MAGIC, OK, Connection, HelloReader, connect
from elasticdl.wire.security import Security

TOKEN = "secret"


def answer_once(connection: Connection) -> None:
    connection.send(OK, connection.receive().head)


def security() -> Security:
    made = Credentials.make("mine")
    return Security(
        ca=made.ca_crt.encode(),
        name=tls_name("mine"),
        certificate=made.tls_crt.encode(),
        key=made.tls_key.encode(),
    )


PLAIN = pytest.mark.parametrize("served", [False], indirect=True, ids=["plain"])


# For callers without the token only: others may need longer on a busy machine.
IMPATIENT = port_multiplexer.Limits(opening_seconds=0.3)


@pytest.fixture
def limits() -> port_multiplexer.Limits:
    return IMPATIENT


@pytest.fixture
def start() -> Iterator[Callable[..., port_multiplexer.Front]]:
    started: list[port_multiplexer.Front] = []

    def start(**options: Any) -> port_multiplexer.Front:
        started.append(port_multiplexer.Front("127.0.0.1", 0, token=TOKEN, **options))
        return started[-1]

    yield start
    for front in started:
        front.stop()


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def served(
    request: pytest.FixtureRequest,
    start: Callable[..., port_multiplexer.Front],
    limits: port_multiplexer.Limits,
) -> tuple[port_multiplexer.Front, Security | None]:
    used = security() if request.param else None
    opened = start(security=used, limits=limits)
    opened.serve(answer_once, 1)
    return opened, used


def is_closed(caller: socket.socket) -> bool:
    """As soon as it is, and not only after the patience of this test."""
    caller.settimeout(60)
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "said", [b"", b"EDL", MAGIC, MAGIC + b"\0" * 5], ids=["nothing", "half", "magic", "more"]
)
def test_caller_that_stops_in_the_handshake_is_disconnected(served: Any, said: bytes) -> None:
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as caller:
        caller.sendall(said)
        assert is_closed(caller)


@PLAIN
def test_caller_that_sends_its_token_slowly_is_disconnected(served: Any) -> None:
    """Every byte comes in time; all of them would take forever. (Encrypted, it would be the handshake's.)"""
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as caller:
        caller.sendall(MAGIC + struct.pack("<IIQ", 0, 4096, 0))
        caller.settimeout(0.05)
        for _ in range(1000):
            try:
                caller.sendall(b"x")
                assert caller.recv(1) == b""
                return
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return
        pytest.fail("it is listened to all the time")


def test_incomplete_magic_bytes_are_not_read(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    plain = socket.socket.recv

    def recv(self: socket.socket, *arguments: Any) -> bytes:
        if socket.MSG_PEEK in arguments:
            looked.append(arguments)
        return plain(self, *arguments)

    monkeypatch.setattr(socket.socket, "recv", recv)
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as caller:
        caller.sendall(MAGIC[:3])
        assert is_closed(caller)
    assert looked == []


def test_token_sent_in_pieces_is_accepted(start: Callable[..., port_multiplexer.Front]) -> None:
    opened = start()
    opened.serve(answer_once, 1)
    with socket.create_connection(("127.0.0.1", opened.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (MAGIC[:3], MAGIC[3:], struct.pack("<IIQ", 0, len(TOKEN), 0), TOKEN.encode()):
            client.sendall(piece)
        client.settimeout(60)
        assert client.recv(16) == struct.pack("<IIQ", OK, 0, 0)


@pytest.mark.parametrize("limits", [port_multiplexer.Limits()])
def test_authenticated_connection_has_no_timeout(served: Any) -> None:
    opened, used = served
    client = connect(f"127.0.0.1:{opened.port}", TOKEN, security=used)
    (theirs,) = opened._open
    # Encrypted ones are waited for outside of their sockets, which have no patience of their own.
    assert theirs.gettimeout() == (None if used is None else 0.0)
    client.send(1, b"hello")
    assert client.receive().head == b"hello"
    client.close()


class Full:
    """A port whose first connections cannot be accepted, for there are too many open."""

    def __init__(self, port: socket.socket, times: int) -> None:
        self._port = port
        self._times = times

    def accept(self) -> Any:
        if self._times:
            self._times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._port.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


def test_failing_accept_is_retried_and_logged_once(
    start: Callable[..., port_multiplexer.Front], caplog: pytest.LogCaptureFixture
) -> None:
    opened: Any = start()
    opened._listening = Full(opened._listening, 5)
    with caplog.at_level(logging.ERROR, "elasticdl.wire"):
        opened.serve(answer_once, 1)
        talk(opened)
    assert caplog.messages.count("A connection could not be accepted.") == 1


def talk(opened: port_multiplexer.Front, used: Security | None = None) -> None:
    client = connect(f"127.0.0.1:{opened.port}", TOKEN, security=used)
    client.send(1, b"still there")
    assert client.receive().head == b"still there"
    client.close()


def threads() -> int:
    return len(psutil.Process().threads())


@pytest.mark.parametrize("limits", [port_multiplexer.Limits()])
def test_idle_callers_take_no_threads_and_block_no_other(served: Any) -> None:
    opened, used = served
    before = threads()
    callers = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(800)]
    talk(opened, used)
    # Those for whom there was no room were closed, the oldest first.
    assert is_closed(callers[0])
    # Libraries that earlier tests used may have started some.
    assert threads() <= before + 20
    for caller in callers:
        caller.close()


def test_connection_without_token_in_its_calls_is_closed_and_one_with_it_stays(
    start: Callable[..., port_multiplexer.Front],
) -> None:
    opened = start(limits=IMPATIENT)
    server = new_server(TOKEN, threads=2, admitted=opened.admit)
    handler = grpc.method_handlers_generic_handler(
        "t.T", {"Call": grpc.unary_unary_rpc_method_handler(lambda message, context: message * 2)}
    )
    server.add_generic_rpc_handlers((handler,))
    behind = add_port(server, "127.0.0.1:0")
    server.start()
    opened.serve(answer_once, behind)
    with open_channel(f"127.0.0.1:{opened.port}", TOKEN) as channel:
        call: Any = channel.unary_unary("/t.T/Call", None, None)
        assert call(b"x", timeout=60) == b"xx"
        with socket.create_connection(("127.0.0.1", opened.port)) as caller:
            caller.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            while caller.recv(4096):
                pass
        (relay,) = opened._relays.values()
        assert relay.is_admitted
        assert call(b"y", timeout=60) == b"yy"
    server.stop(None).wait()


def test_without_a_thread_left_the_loop_continues(
    start: Callable[..., port_multiplexer.Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = start()
    opened.serve(answer_once, 1)
    plain, failures = threading.Thread.start, iter(range(3))

    def fail(self: threading.Thread) -> None:
        if self.name == "call" and next(failures, None) is not None:
            raise RuntimeError("can't start new thread")
        plain(self)

    monkeypatch.setattr(threading.Thread, "start", fail)
    for _ in range(3):
        with pytest.raises(OSError, match="closed"):
            connect(f"127.0.0.1:{opened.port}", TOKEN)
    talk(opened)
    assert opened.connections <= 1


def test_unexpected_error_ends_one_connection_and_not_the_loop(
    start: Callable[..., port_multiplexer.Front], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = start()
    opened.serve(answer_once, 1)

    def fail(self: Any, token: str) -> bool:
        monkeypatch.undo()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(HelloReader, "shows", fail)
    with pytest.raises(OSError, match="closed"):
        connect(f"127.0.0.1:{opened.port}", TOKEN)
    talk(opened)


def test_port_that_cannot_accept_for_long_is_unhealthy(start: Callable[..., port_multiplexer.Front]) -> None:
    now = 0.0
    opened: Any = start(clock=lambda: now)
    listening = opened._listening
    opened._listening = Full(listening, 1 << 30)
    opened._selector.register(listening, 1, opened._accept)
    opened._accept(1)
    assert opened.unhealthy() == ""
    now = 19.0
    opened._selector.register(opened._listening, 1, opened._accept)
    opened._accept(1)
    assert opened.unhealthy() == ""
    now = 21.0
    opened._selector.register(opened._listening, 1, opened._accept)
    opened._accept(1)
    assert opened.unhealthy() == "no connection could be accepted for 21 s"
    opened._listening = listening
    with socket.create_connection(("127.0.0.1", opened.port)):
        opened._accept(1)
    assert opened.unhealthy() == ""
    opened._close_all()
