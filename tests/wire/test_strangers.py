"""Whoever connects and does not say who they are is not waited for, and costs nothing meanwhile. Nor do those for whom
there is no room.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire import port_multiplexer
from elasticdl.wire.frames import MAGIC, OK, Connection, connect
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For strangers only: friends may need longer on a busy machine."""
    monkeypatch.setattr(port_multiplexer, "_OPENING_SECONDS", 0.3)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[port_multiplexer.Front, Security | None]]:
    used = security() if request.param else None
    opened = port_multiplexer.Front("127.0.0.1", 0, token=TOKEN, security=used)
    opened.serve(answer_once, 1)
    yield opened, used
    opened.stop()


def is_closed(stranger: socket.socket) -> bool:
    """As soon as it is, and not only after the patience of this test."""
    stranger.settimeout(60)
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "said", [b"", b"EDL", MAGIC, MAGIC + b"\0" * 5], ids=["nothing", "half", "magic", "more"]
)
@pytest.mark.usefixtures("impatient")
def test_one_who_stops_in_the_middle(served: Any, said: bytes) -> None:
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as stranger:
        stranger.sendall(said)
        assert is_closed(stranger)


@PLAIN
@pytest.mark.usefixtures("impatient")
def test_one_who_never_comes_to_an_end(served: Any) -> None:
    """Every byte comes in time; all of them would take for ever. (Encrypted, it would be the handshake's.)"""
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as stranger:
        stranger.sendall(MAGIC + struct.pack("<IIQ", 0, 4096, 0))
        stranger.settimeout(0.05)
        for _ in range(1000):
            try:
                stranger.sendall(b"x")
                assert stranger.recv(1) == b""
                return
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return
        pytest.fail("it is listened to all the time")


@pytest.mark.usefixtures("impatient")
def test_half_a_word_is_looked_at_once(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    plain = socket.socket.recv

    def recv(self: socket.socket, *arguments: Any) -> bytes:
        if socket.MSG_PEEK in arguments:
            looked.append(arguments)
        return plain(self, *arguments)

    monkeypatch.setattr(socket.socket, "recv", recv)
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as stranger:
        stranger.sendall(MAGIC[:3])
        assert is_closed(stranger)
    assert len(looked) == 1


@PLAIN
def test_one_who_says_the_word_in_pieces_is_let_in(served: Any) -> None:
    opened, _ = served
    with socket.create_connection(("127.0.0.1", opened.port)) as friend:
        friend.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (MAGIC[:3], MAGIC[3:], struct.pack("<IIQ", 0, len(TOKEN), 0), TOKEN.encode()):
            friend.sendall(piece)
        friend.settimeout(60)
        assert friend.recv(16) == struct.pack("<IIQ", OK, 0, 0)


def test_friends_are_waited_for_without_limit(served: Any) -> None:
    opened, used = served
    friend = connect(f"127.0.0.1:{opened.port}", TOKEN, security=used)
    (theirs,) = opened._open
    # Encrypted ones are waited for outside of their sockets, which have no patience of their own.
    assert theirs.gettimeout() == (None if used is None else 0.0)
    friend.send(1, b"hello")
    assert friend.receive().head == b"hello"
    friend.close()


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


class Pauses(threading.Event):
    """That take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


def test_with_too_many_connections_it_waits_for_one_to_end_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened: Any = port_multiplexer.Front("127.0.0.1", 0, token=TOKEN)
    opened._listening = Full(opened._listening, 5)
    pauses = opened._stopped = Pauses()
    with caplog.at_level(logging.ERROR, "elasticdl.wire"):
        opened.serve(answer_once, 1)
        friend = connect(f"127.0.0.1:{opened.port}", TOKEN)
    friend.send(1, b"still there")
    assert friend.receive().head == b"still there"
    friend.close()
    assert pauses.seconds == [0.1] * 5
    assert [record.getMessage() for record in caplog.records] == ["A connection could not be accepted."]
    opened.stop()
