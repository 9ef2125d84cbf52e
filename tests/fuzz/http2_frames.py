"""Nonsense on connections of the server for unary calls: damaged frames in any order, in pieces of any size.

The connection is closed with a reason, or it goes on, and answers those calls that were complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import grpc
import hpack

from elasticdl.wire.http2 import frames
from elasticdl.wire.http2.connection import Connection, Limits
from elasticdl.wire.http2.header_blocks import Headers
from tests.fuzz.mutations import mutated

Round = Callable[[random.Random], None]
_LIMITS = Limits(message_bytes=1_000, buffered_bytes=3_000, streams=5)
_WINDOWS = (0, 1, 100, frames.DEFAULT_WINDOW, frames.MAX_WINDOW, frames.MAX_WINDOW + 1)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("::1", 5, 0, 0), "socket": self})
        self.is_closed = False

    def setsockopt(self, *option: int) -> None: ...

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class _Handler:
    """Answers calls at once, later, with errors, or never."""

    is_stopping = False
    held_bytes = 0

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.waiting: list[int] = []
        self.began = 0

    def begin(self, connection: Connection, stream: int, headers: Headers, message: bytes) -> None:
        assert len(message) <= _LIMITS.message_bytes
        self.began += 1
        kind = self._source.randrange(3)
        if kind == 0:
            connection.reply(stream, message * self._source.choice((0, 1, 100)))
        elif kind == 1:
            connection.fail(stream, grpc.StatusCode.INTERNAL, "wrong")
        else:
            self.waiting.append(stream)

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None: ...


def _frame(source: random.Random, encoder: hpack.Encoder, stream: int) -> bytes:
    kind = source.choice((*range(10), frames.DATA, frames.HEADERS, frames.HEADERS, 77))
    flags = source.choice((0, frames.END_STREAM, frames.END_HEADERS, 5, 5, 8, 0x20, source.randrange(256)))
    payload = source.randbytes(source.choice((0, 4, 8, 300)))
    if kind == frames.HEADERS:
        content = source.choice(("application/grpc", "text/html", "x" * 5_000))
        payload = encoder.encode(
            [(":method", "POST"), (":path", "/a/b"), ("content-type", content)], huffman=False
        )
    elif kind == frames.DATA:
        size = source.choice((0, 1, 500, 1_000, 1_001))
        payload = (size.to_bytes(5, "big") + bytes(size))[: source.choice((2, 5, 300, 2_000))]
    elif kind == frames.SETTINGS:
        return frames.settings(
            {source.randrange(8): source.choice((*_WINDOWS[:-1], 1 << 20)) for _ in range(2)}
        )
    elif kind == frames.WINDOW_UPDATE:
        payload = source.choice(_WINDOWS).to_bytes(4, "big")
    if source.random() < 0.05:
        payload = mutated(payload, source)
    return frames.frame(kind, flags & 0xFF, stream, payload)


def _valid_frames(source: random.Random, encoder: hpack.Encoder, last: int) -> tuple[bytes, int]:
    """What a client may send after the stream `last`: mostly calls, whole or in parts. Returns the last stream then."""
    kind = source.randrange(10)
    if kind < 5:
        last += 2
        block = encoder.encode([(":method", "POST"), (":path", "/a/b"), ("content-type", "application/grpc")])
        size = source.choice((0, 1, 500, 1_000, 1_001))
        message = size.to_bytes(5, "big") + bytes(size)
        sent = source.choice((len(message), len(message), source.randrange(len(message))))
        flags = frames.END_STREAM if sent == len(message) else 0
        found = frames.frame(frames.HEADERS, frames.END_HEADERS, last, block)
        return found + frames.frame(frames.DATA, flags, last, message[:sent]), last
    stream = source.randrange(1, last + 1, 2) if last > 1 else 0
    if kind == 5:
        # Of streams that have ended already, too.
        return frames.frame(frames.PRIORITY, 0, stream, bytes(5)), last
    if kind == 6 and stream:
        return frames.reset(stream, frames.ErrorCode.CANCEL), last
    if kind == 7:
        return frames.settings({frames.INITIAL_WINDOW_SIZE: source.choice((0, 1, 100, 65_535))}), last
    if kind == 8:
        return frames.frame(frames.PING, 0, 0, bytes(8)), last
    return frames.window_update(source.choice((0, stream)), source.choice((1, 100, 10_000))), last


def _one_round(source: random.Random) -> None:
    handler, transport, encoder = _Handler(source), _Transport(), hpack.Encoder()
    connection = Connection(handler, _LIMITS)
    connection.connection_made(transport)
    data, last = frames.PREFACE + frames.settings({}), -1
    damage = source.choice((0.0, 0.02, 0.5))
    for _ in range(source.randint(1, 60)):
        if source.random() < damage:
            data += _frame(source, encoder, source.choice((0, 1, max(last, 1))))
        else:
            added, last = _valid_frames(source, encoder, last)
            data += added
    if source.random() < damage:
        data = mutated(data, source)
    while data and not transport.is_closed:
        size = source.choice((1, 9, 10, 1_000, len(data)))
        connection.receive(data[:size])
        data = data[size:]
        if handler.waiting and source.random() < 0.3:
            connection.reply(handler.waiting.pop(), bytes(100))
        assert 0 <= connection._buffered <= _LIMITS.buffered_bytes + frames.DEFAULT_FRAME_BYTES
        assert len(connection._streams) <= _LIMITS.streams
        assert handler.held_bytes == connection._buffered
        assert set(connection._stalled) | set(connection._owed_since) <= set(connection._streams)
        if not damage:
            assert not transport.is_closed
    connection.connection_lost(None)
    assert handler.held_bytes == 0


@contextlib.contextmanager
def _connections() -> Iterator[Round]:
    loop = asyncio.new_event_loop()

    async def inside(source: random.Random) -> None:
        _one_round(source)

    try:
        yield lambda source: loop.run_until_complete(inside(source))
    finally:
        loop.close()


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {"http2": _connections}
