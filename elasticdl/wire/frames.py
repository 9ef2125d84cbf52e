"""Messages with many numbers over plain sockets: a small head, and a body that is never copied.

gRPC takes a message as one string of bytes: numbers are copied into it, framed, and copied out of it, on both sides. A
frame is sent from the memory of its parts (`sendmsg`) and received into its destination (`recv_into`); both release the
interpreter lock. A connection has one call at a time, answered in order; threads that call concurrently have a
connection each.

    frame     its kind: a method, or the status of an answer (u32) · bytes of the head (u32) · of the body (u64)
              head · body
    opening   MAGIC, unencrypted · the TLS handshake, where the job has certificates · a frame with the token

MAGIC comes first so that another protocol can share the port (`port_multiplexer.py`).

One thread may send while another receives. A plain socket allows this, an encrypted one does not: OpenSSL keeps one
state for both directions, and Python lets other threads in while it works on it. So on an encrypted connection no call
blocks inside OpenSSL: a thread waits outside, and lets the other direction have its turn.

On one machine a body is not sent: it is in memory that both sides have mapped (`shared_memory.py`). Where a connection
has only calls, one after the other, the caller offers such memory as soon as a body was large enough to pay; where
frames follow each other without an answer, the sender does so at first. The other side accepts or refuses. A frame with
a body there has its first bit set, and the body's place in the upper half of its size.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
import numpy as np

from elasticdl.wire.security import NotTrusted, Security
from elasticdl.wire.shared_bodies import LEAST, Part, SharedBodies, copy
from elasticdl.wire.shared_memory import NotShared, Offered, accept

MAGIC = b"EDL-FRM1"
_HEADER = struct.Struct("<IIQ")
_HELLO = 0
OK = 0
# The longest frame accepted from a caller that has not authenticated yet.
_LONGEST_HELLO = 4096
# Names and shapes of arrays, and the attributes of a bucket.
_LONGEST_HEAD = 64 << 20
# The largest model that one server can get at once. Memory is used only as the bytes arrive (`_new_memory`).
_LONGEST_BODY = 16 << 30
# A machine that vanished closes no connection; it is found out within half a minute.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
# So much is on its way at a time: rows of a batch, several times over.
_SOCKET_BUFFER = 4 << 20
_CONNECT_SECONDS = 5.0
# How often a caller who waits is asked whether to go on.
_PATIENCE_SECONDS = 0.1
_MOST_PARTS = 512
# Bits of what a frame is, beside the method or the status, which are small numbers.
# Its body does not follow: it lies in the segment. The upper half of the body's size says where, the lower how long.
_SHARED = 1 << 31
# The body of the call that this answers is still in use. Neither side writes to that segment any more: the caller
# discards it, and offers another one when it needs shared memory again.
_RELEASED = 1 << 30
# What a frame is that is neither a call nor an answer: it offers a segment, its head says which. It is answered at
# once, by OK or _REFUSED, before anything else is sent. As far from methods as a number without those bits can be.
_SEGMENT = _RELEASED - 1
_REFUSED: int = grpc.StatusCode.FAILED_PRECONDITION.value[0]


class ConnectionLost(OSError):
    """The other side is gone, or says what makes no sense."""


class Frame(NamedTuple):
    kind: int
    head: bytes
    # Unless it was asked to be kept, valid until this side sends its next frame or receives one: with the one the other
    # side learns that it may write to the segment again, for the other the memory of this connection is used again.
    body: memoryview


class Connection:
    """A side of an open connection. Not for two threads at once, but one may send while another receives."""

    def __init__(
        self, opened: socket.socket, *, waiting: Callable[[], None] | None = None, shares: bool = False
    ) -> None:
        """`waiting` is called all the time while nothing comes or goes, and may raise to end that. `shares`: it is for
        calls alone, so that memory may be offered between them.
        """
        self._socket = opened
        self._waiting = waiting
        self._encrypted = isinstance(opened, ssl.SSLSocket)
        self._turn = threading.Lock()
        if self._encrypted:
            opened.setblocking(False)
        self._header = bytearray(_HEADER.size)
        self._spare = memoryview(b"")
        self._room = bytearray()
        # On the server's side this is known when memory is offered.
        self._shares = shares and not self._encrypted and _is_local(opened)
        self._largest = 0
        self._bodies: SharedBodies | None = None
        # Whether the last frame's body lies in the segment; and whether it is in use there after the answer.
        self._was_shared = self._in_use = False

    @property
    def waiting(self) -> Callable[[], None] | None:
        return self._waiting

    @waiting.setter
    def waiting(self, value: Callable[[], None] | None) -> None:
        self._waiting = value

    def close(self) -> None:
        self._socket.close()

    def interrupt(self) -> None:
        """Ends what other threads wait for on this connection."""
        hang_up(self._socket)

    def send(
        self,
        kind: int,
        head: bytes = b"",
        body: Sequence[Part] = (),
        *,
        ticket: int = 0,
    ) -> None:
        """`ticket`: by which the memory of the body is released, after `share`. They must grow."""
        size = sum(len(part) for part in body)
        if self._shares and self._bodies is None and max(size, self._largest) >= LEAST:
            self._provide(answered=True)
        at = self._bodies.put(body, size, ticket) if self._bodies is not None else None
        if self._in_use:
            kind |= _RELEASED
        if at is None:
            self._send(kind, head, size, body)
        else:
            self._send(kind | _SHARED, head, size | at << 32)
        if self._in_use:
            self._bodies, self._in_use = None, False

    def _send(self, kind: int, head: bytes, size: int, body: Sequence[Part] = ()) -> None:
        start = _HEADER.pack(kind, len(head), size) + head
        if self._encrypted:
            self._send_each([start, *body])
        else:
            self._send_parts([memoryview(start), *(memoryview(part) for part in body if len(part))])

    def reserve(self, size: int) -> memoryview:
        """Memory for the body of an answer: all of it, and given to `send` as it was got here."""
        reserved = self._bodies.reserve(size) if self._bodies is not None else None
        if reserved is not None:
            return reserved
        if len(self._room) < size:
            self._room = bytearray(size + size // 4)
        return memoryview(self._room)[:size]

    def share(self) -> None:
        """Offers memory for frames that are sent before others are answered; answers to them have small bodies.

        Must be called before anything is received.
        """
        if not self._encrypted and _is_local(self._socket):
            self._provide(answered=False)
            # That was all: between frames nothing can be offered.
            self._shares = False

    def release(self, ticket: int) -> None:
        """The other side has no need any more for bodies up to this one."""
        if self._bodies is not None:
            self._bodies.release(ticket)

    def _provide(self, *, answered: bool) -> None:
        """Offers memory, as much as could be needed: the system has to find it only where it is used."""
        try:
            offered = Offered()
        except OSError:
            self._shares = False
            return
        try:
            self._send(_SEGMENT, offered.words, 0)
            self._shares = self.receive().kind == OK
        finally:
            offered.close()
        if self._shares:
            self._bodies = SharedBodies(offered.segment, serves=False, answered=answered)

    def _take_offer(self, words: bytes) -> None:
        """The other side of it."""
        try:
            if self._encrypted or not _is_local(self._socket):
                raise NotShared("it comes from another machine")
            segment = accept(words)
        except NotShared as error:
            self._send(_REFUSED, str(error).encode(), 0)
            return
        self._bodies = SharedBodies(segment, serves=True)
        self._send(OK, b"", 0)

    def _send_parts(self, parts: list[memoryview]) -> None:
        first = 0
        while first < len(parts):
            try:
                sent = self._socket.sendmsg(parts[first : first + _MOST_PARTS])
            except BlockingIOError:
                self._wait()
                continue
            while first < len(parts) and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            if sent:
                parts[first] = parts[first][sent:]

    def _send_each(self, parts: Sequence[Part]) -> None:
        for part in parts:
            rest = memoryview(part)
            while len(rest):
                rest = rest[self._take_turn(self._socket.send, rest) :]

    def _take_turn(self, call: Callable[[memoryview], int], piece: memoryview) -> int:
        while True:
            try:
                with self._turn:
                    return call(piece)
            except ssl.SSLWantReadError:
                self._wait_for(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait_for(select.POLLOUT)

    def _wait_for(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll(None if self._waiting is None else _PATIENCE_SECONDS * 1000):
            self._wait()

    def receive(self, *, keep: bool = False, into: Sequence[memoryview] | None = None) -> Frame:
        """The next frame. Its body is in memory of its own if it is to be kept, or where the caller wants it.

        `into`: if the frame is no error and has a body, it must be of the size of these together; then the frame's
        own body is empty. Raises `ConnectionLost` at the end.
        """
        while True:
            kind, head_size, body_size = self._receive_header()
            head = bytearray(head_size)
            self._fill(memoryview(head))
            if kind != _SEGMENT:
                break
            if body_size:
                raise ConnectionLost("an offer of memory has a body")
            self._take_offer(bytes(head))
        self._was_shared = bool(kind & _SHARED)
        shared: memoryview | None = None
        if self._was_shared:
            at, body_size = body_size >> 32, body_size & 0xFFFFFFFF
            shared = self._bodies.look(at, body_size) if self._bodies is not None else None
            if shared is None:
                raise ConnectionLost("a body lies where there is no memory")
        if kind & _RELEASED:
            # Bodies that have been received can still be read.
            self._bodies = None
        kind &= ~(_SHARED | _RELEASED)
        self._largest = max(self._largest, body_size)
        if into is not None and kind == OK and body_size:
            if sum(len(part) for part in into) != body_size:
                raise ConnectionLost(f"an answer has {body_size} bytes, {sum(map(len, into))} were expected")
            for part in into:
                if shared is None:
                    self._fill(part)
                else:
                    copy(part, [shared[: len(part)]])
                    shared = shared[len(part) :]
            return Frame(kind, bytes(head), memoryview(b""))
        if shared is not None and not keep:
            return Frame(kind, bytes(head), shared)
        body = _new_memory(body_size) if keep else self._reused(body_size)
        if shared is None:
            self._fill(body)
        else:
            copy(body, [shared])
        return Frame(kind, bytes(head), body)

    def _receive_header(self) -> tuple[int, int, int]:
        self._fill(memoryview(self._header))
        kind, head_size, body_size = _HEADER.unpack(self._header)
        if head_size > _LONGEST_HEAD or (not kind & _SHARED and body_size > _LONGEST_BODY):
            raise ConnectionLost("a frame makes no sense")
        return kind, head_size, body_size

    def _reused(self, size: int) -> memoryview:
        if len(self._spare) < size:
            self._spare = _new_memory(size + size // 4)
        return self._spare[:size]

    def keep_body(self) -> None:
        """Keeps the body of the last frame valid for its holder: later frames get other memory.

        Before it is answered.
        """
        self._spare = memoryview(b"")
        # The answer forbids the other side to reuse the segment.
        self._in_use = self._was_shared

    def _fill(self, target: memoryview) -> None:
        done = 0
        while done < len(target):
            try:
                if self._encrypted:
                    count = self._take_turn(self._socket.recv_into, target[done:])
                else:
                    count = self._socket.recv_into(target[done:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                self._wait()
                continue
            if not count:
                raise ConnectionLost("the connection was closed")
            done += count

    def _wait(self) -> None:
        if self._waiting is not None:
            self._waiting()


def _new_memory(size: int) -> memoryview:
    """Writable memory. Unlike a `bytearray` it is not cleared: a large one takes no memory before it is written to, so
    a header costs nothing, whatever size it claims.
    """
    try:
        return np.empty(size, np.uint8).data
    except MemoryError as error:
        raise ConnectionLost(f"there is no memory for a body of {size} bytes") from error


def connect(
    address: str,
    token: str,
    *,
    security: Security | None = None,
    waiting: Callable[[], None] | None = None,
    shares: bool = False,
) -> Connection:
    """A connection to HOST:PORT that has been let in.

    `security`: that of the environment, unless given. `waiting` and `shares` as for `Connection`. Raises `OSError` if
    nothing listens there, `NotTrusted` if the token or the certificate is not of this job.
    """
    security = security or Security.of_environment()
    host, _, port = address.rpartition(":")
    opened = socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS)
    try:
        opened.sendall(MAGIC)
        if security is not None:
            opened = security.client_context().wrap_socket(opened, server_hostname=security.name)
        prepare(opened, patient=waiting is None)
        connection = Connection(opened, waiting=waiting, shares=shares)
        connection.send(_HELLO, token.encode())
        answer = connection.receive()
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise NotTrusted(f"The server at {address} is not of this job: {error.verify_message}.") from error
    except BaseException:
        opened.close()
        raise
    if answer.kind != OK:
        connection.close()
        raise NotTrusted(f"The server at {address} does not let us in: {answer.head.decode()}")
    return connection


class HelloReader:
    """Reads the first frame, of a caller that is not known yet, from a non-blocking socket: not a byte too many."""

    def __init__(self) -> None:
        self._found = b""
        self._size = _HEADER.size
        self._header_read = False
        self.complete = False

    def read(self, opened: socket.socket) -> None:
        """Reads until everything is there. Raises the socket's error when no more arrives, and `ConnectionLost`."""
        while not self.complete:
            if len(self._found) < self._size:
                piece = opened.recv(self._size - len(self._found))
                if not piece:
                    raise ConnectionLost("the connection was closed")
                self._found += piece
            if len(self._found) == self._size:
                self._advance()

    def _advance(self) -> None:
        if self._header_read:
            self.complete = True
            return
        _, head_size, body_size = _HEADER.unpack(self._found)
        if head_size > _LONGEST_HELLO or body_size:
            raise ConnectionLost("the first frame is no token")
        self._found, self._size, self._header_read = b"", head_size, True

    def shows(self, token: str) -> bool:
        return self.complete and hmac.compare_digest(self._found, token.encode())


def admit(opened: socket.socket) -> Connection:
    """The server's side of `connect`, after the right token."""
    prepare(opened, patient=True)
    connection = Connection(opened)
    connection.send(OK)
    return connection


def refuse(opened: socket.socket) -> None:
    """Sends UNAUTHENTICATED to a caller without the token, if that is possible without blocking."""
    unauthenticated: int = grpc.StatusCode.UNAUTHENTICATED.value[0]
    message = b"This job's token is missing or wrong."
    with contextlib.suppress(OSError):
        opened.send(_HEADER.pack(unauthenticated, len(message), 0) + message)


def hang_up(opened: socket.socket) -> None:
    """Ends what other threads wait for on a connection, which stays open until it is closed."""
    try:
        # Not the method of an encrypted one, which would take from those threads what they just use.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
    except OSError:
        # Gone already.
        return


def prepare(opened: socket.socket, *, patient: bool) -> None:
    """Settings of all our connections; an impatient one returns to its caller when nothing happens."""
    opened.settimeout(None)
    if opened.family in (socket.AF_INET, socket.AF_INET6):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    # Not `settimeout`, which would ask the system twice for every piece.
    patience = 0.0 if patient else _PATIENCE_SECONDS
    interval = struct.pack("ll", int(patience), int(patience % 1 * 1_000_000))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, interval)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, interval)


def _is_local(opened: socket.socket) -> bool:
    """Whether the other side is on this machine, or something on this machine passes on what it says."""
    if opened.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(opened.getpeername()[0].partition("%")[0]).is_loopback
