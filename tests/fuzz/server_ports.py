"""Nonsense at the port of a parameter server, with and without the token, plain and encrypted.

After each round a valid client is served, and the process has not grown by more than is allowed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import numpy as np

from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import MAGIC, connect
from elasticdl.wire.security import NotTrusted, Security
from tests.fuzz.callers import CALL_SECONDS, Memory, encrypted
from tests.fuzz.mutations import mutated
from tests.ps.conftest import TOKEN, Servers

Round = Callable[[random.Random], None]
_CLOSED = (OSError, NotTrusted, ValueError)


def _numbers(source: random.Random) -> int:
    return source.choice((0, 1, 8, 100, 2**16, 2**24, 2**31 - 1, 2**32 - 1))


def _header(source: random.Random) -> bytes:
    size = source.choice((0, 1, 16, 5000, 2**31, 2**33, 2**63, 2**64 - 1))
    return b"".join(
        (
            source.choice((source.randrange(64), _numbers(source), 2**30 - 1, 2**31)).to_bytes(4, "little"),
            _numbers(source).to_bytes(4, "little"),
            size.to_bytes(8, "little"),
        )
    )


def _nonsense(source: random.Random) -> bytes:
    pieces = (
        lambda: _header(source),
        lambda: source.randbytes(source.choice((1, 16, 300))),
        lambda: mutated(_push(), source),
        lambda: _call(source),
        lambda: bytes(64),
    )
    return b"".join(source.choice(pieces)() for _ in range(source.randint(1, 3)))


def _call(source: random.Random) -> bytes:
    """A frame of the right length, so that what is in it is read: of any call, REPLICATE and EXPORT too."""
    head, body = mutated(_push(), source), source.randbytes(source.choice((0, 16, 300)))
    header = (source.randint(call_codec.INITIALIZE, call_codec.EXPORT), len(head), len(body))
    return struct.pack("<IIQ", *header) + head + body


def _push() -> bytes:
    request = ps_pb2.PushRequest(worker="worker-0", sequence=1, generation=1, learning_rate=0.1)
    return request.SerializeToString()


@contextlib.contextmanager
def _server(send: Callable[[str, bytes, random.Random], None]) -> Iterator[Round]:
    servers = Servers(1, ServerSettings())
    try:
        (address,) = servers.addresses
        client = servers.client()
        sgd = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
        client.initialize({"a": np.ones(4, np.float32)}, {}, sgd, [TableSpec(name="t", width=2)])
        memory = Memory()

        def one_round(source: random.Random) -> None:
            with contextlib.suppress(*_CLOSED):
                send(address, _nonsense(source), source)
            assert client.pull().trainable["a"].tolist() == [1.0] * 4
            memory.check()

        yield one_round
    finally:
        servers.close()


@contextlib.contextmanager
def _encrypted_server(send: Callable[[str, bytes, random.Random], None]) -> Iterator[Round]:
    with encrypted(), _server(send) as one_round:
        yield one_round


def _with_token(address: str, data: bytes, source: random.Random) -> None:
    connection = connect(address, TOKEN)
    try:
        opened = connection._socket
        opened.settimeout(CALL_SECONDS)
        opened.sendall(data)
        _read_to_end(opened)
    finally:
        connection.close()


def _without_token(address: str, data: bytes, source: random.Random) -> None:
    with _open(address) as opened:
        opened.sendall(source.choice((b"", MAGIC, MAGIC)) + data)
        _read_to_end(opened)


def _in_handshake(address: str, data: bytes, source: random.Random) -> None:
    """Damaged records of TLS: the client's greeting, or what follows the server's answer to it."""
    security = Security.of_environment()
    assert security is not None
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = security.client_context().wrap_bio(received, sent, server_hostname=security.name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    greeting = sent.read()
    with _open(address) as opened:
        if source.random() < 0.5:
            opened.sendall(MAGIC + mutated(greeting, source) + source.choice((b"", data)))
        else:
            opened.sendall(MAGIC + greeting)
            received.write(opened.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            opened.sendall(mutated(sent.read() or data, source))
        _read_to_end(opened)


def _after_handshake(address: str, data: bytes, source: random.Random) -> None:
    """Encrypted as it should be, and then no token."""
    security = Security.of_environment()
    assert security is not None
    plain = _open(address)
    plain.sendall(MAGIC)
    with security.client_context().wrap_socket(plain, server_hostname=security.name) as opened:
        opened.sendall(data)
        _read_to_end(opened)


def _encrypted_without_token(address: str, data: bytes, source: random.Random) -> None:
    send = source.choice((_without_token, _in_handshake, _after_handshake))
    send(address, data, source)


def _encrypted_with_token(address: str, data: bytes, source: random.Random) -> None:
    """With the token: nonsense inside of the encryption, or a damaged record."""
    if source.random() < 0.7:
        _with_token(address, data, source)
        return
    connection = connect(address, TOKEN)
    # The same connection, past the encryption.
    with socket.socket(fileno=connection._socket.detach()) as opened:
        opened.settimeout(CALL_SECONDS)
        record = struct.pack(">BHH", 23, 0x0303, min(len(data), 16_000)) + data
        opened.sendall(source.choice((record, mutated(record, source))))
        _read_to_end(opened)


def _open(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=CALL_SECONDS)


def _read_to_end(opened: socket.socket) -> None:
    """Sends no more, and waits until the server has closed the connection."""
    opened.shutdown(socket.SHUT_WR)
    try:
        while opened.recv(1 << 16):
            pass
    except TimeoutError as error:
        raise AssertionError("the server keeps a connection that has ended") from error


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "server": lambda: _server(_without_token),
    "server-token": lambda: _server(_with_token),
    "server-tls": lambda: _encrypted_server(_encrypted_without_token),
    "server-tls-token": lambda: _encrypted_server(_encrypted_with_token),
}
