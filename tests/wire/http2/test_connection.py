"""The protocol of one connection, frame by frame: what is answered, and what closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import hpack
import pytest

from elasticdl.wire.http2 import frames
from elasticdl.wire.http2.connection import Connection, Limits, RunningCall
from elasticdl.wire.http2.frames import ErrorCode, frame
from elasticdl.wire.http2.header_blocks import Headers

ENDS = frames.END_STREAM
WHOLE = frames.END_HEADERS
HEADERS = [(":method", "POST"), (":path", "/a/b"), ("content-type", "application/grpc")]
BLOCK = hpack.Encoder().encode(HEADERS)
Sent = tuple[int, int, int, bytes]


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "socket": self})
        self.written = b""
        self.is_closed = self.is_paused = False

    def setsockopt(self, *option: int) -> None: ...

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Call:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Client:
    """The other end of a connection, and the server behind it, which answers when the test does."""

    def __init__(self, **limits: Any) -> None:
        self.is_stopping = False
        self.held_bytes = 0
        self.begun: list[tuple[int, Headers, bytes]] = []
        self.calls: list[Call] = []
        self.connections: set[Connection] = set()
        self.transport = Transport()
        self.connection = Connection(self, Limits(**limits))
        self.connection.connection_made(self.transport)

    def begin(self, connection: Connection, stream: int, headers: Headers, message: bytes) -> RunningCall:
        self.begun.append((stream, headers, message))
        self.calls.append(Call())
        return self.calls[-1]

    def opened(self, connection: Connection) -> bool:
        self.connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)

    @property
    def messages(self) -> list[bytes]:
        return [message for _, _, message in self.begun]

    def greet(self, **settings: int) -> None:
        self.send(
            frames.PREFACE,
            frames.settings({getattr(frames, name): value for name, value in settings.items()}),
        )
        self.sent()

    def send(self, *data: bytes) -> None:
        self.connection.receive(b"".join(data))

    def call(self, stream: int, message: bytes = b"hello") -> None:
        self.send(
            frame(frames.HEADERS, WHOLE, stream, BLOCK), frame(frames.DATA, ENDS, stream, prefixed(message))
        )

    def sent(self) -> list[Sent]:
        """The frames since the last time."""
        data, self.transport.written = self.transport.written, b""
        found = []
        while data:
            size = 9 + int.from_bytes(data[:3], "big")
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:size]))
            data = data[size:]
        return found

    def reason(self) -> ErrorCode:
        """Why the server has closed the connection."""
        assert self.transport.is_closed
        kind, _, _, payload = self.sent()[-1]
        assert kind == frames.GOAWAY
        return ErrorCode(int.from_bytes(payload[4:8], "big"))

    def status(self) -> str:
        """Of the call that has ended."""
        blocks = [payload for kind, _, _, payload in self.sent() if kind == frames.HEADERS]
        return decoded(blocks[-1], hpack.Decoder())["grpc-status"]


def decoded(block: bytes, decoder: hpack.Decoder) -> Headers:
    return {str(name): str(value) for name, value in decoder.decode(block)}


def prefixed(message: bytes, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


def with_client(**limits: Any) -> Callable[[Callable[[Client], None]], Callable[[], None]]:
    """Runs a test inside an event loop, with a client that has said hello."""

    def decorate(test: Callable[[Client], None]) -> Callable[[], None]:
        async def inside() -> None:
            client = Client(**limits)
            client.greet()
            test(client)
            client.connection.connection_lost(None)
            assert not client.connections

        def run() -> None:
            work: Coroutine[Any, Any, None] = inside()
            asyncio.run(work)

        run.__name__ = test.__name__
        return run

    return decorate


@with_client()
def test_call_is_answered(client: Client) -> None:
    client.call(1)
    assert client.begun == [(1, dict(HEADERS), b"hello")]
    client.connection.reply(1, b"there")
    (_, flags, _, headers), data, (_, end, _, trailers) = client.sent()
    assert (flags, end) == (WHOLE, WHOLE | ENDS)
    assert data == (frames.DATA, 0, 1, prefixed(b"there"))
    decoder = hpack.Decoder()
    assert decoded(headers, decoder) == {":status": "200", "content-type": "application/grpc"}
    assert decoded(trailers, decoder) == {"grpc-status": "0"}


@with_client()
def test_frames_arrive_byte_by_byte(client: Client) -> None:
    data = frame(frames.HEADERS, WHOLE, 1, BLOCK) + frame(frames.DATA, ENDS, 1, prefixed(b"hello"))
    for byte in data:
        client.send(bytes([byte]))
    assert client.messages == [b"hello"]


def test_preface_arrives_byte_by_byte() -> None:
    async def inside() -> None:
        client = Client()
        for byte in frames.PREFACE + frames.settings({}):
            client.send(bytes([byte]))
        client.call(1)
        assert client.messages == [b"hello"]
        client.connection.connection_lost(None)

    asyncio.run(inside())


@with_client()
def test_message_in_pieces_with_padding_priority_and_trailers(client: Client) -> None:
    padded = bytes([3]) + bytes(5) + BLOCK + bytes(3)
    flags = WHOLE | frames.PADDED | frames.HAS_PRIORITY
    message = prefixed(b"hello")
    client.send(
        frame(frames.HEADERS, flags, 1, padded),
        frame(frames.DATA, 0, 1, message[:2]),
        frame(frames.DATA, frames.PADDED, 1, bytes([2]) + message[2:] + bytes(2)),
        frame(frames.PRIORITY, 0, 1, bytes(5)),
        frame(99, 0, 1, b"unknown"),
        frame(frames.HEADERS, WHOLE | ENDS, 1, hpack.Encoder().encode([("a", "b")])),
    )
    assert client.messages == [b"hello"]


@with_client()
def test_headers_in_several_frames(client: Client) -> None:
    client.send(
        frame(frames.HEADERS, 0, 1, BLOCK[:3]),
        frame(frames.CONTINUATION, 0, 1, BLOCK[3:5]),
        frame(frames.CONTINUATION, WHOLE, 1, BLOCK[5:]),
        frame(frames.DATA, ENDS, 1, prefixed(b"")),
    )
    assert client.begun == [(1, dict(HEADERS), b"")]


@with_client()
def test_reply_waits_for_windows(client: Client) -> None:
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))
    client.call(1)
    client.sent()
    client.connection.reply(1, bytes(20))
    assert [(kind, len(payload)) for kind, _, _, payload in client.sent()][1:] == [(frames.DATA, 10)]
    client.send(frames.window_update(0, 100))
    assert client.sent() == []
    client.send(frames.window_update(1, 7))
    assert [(kind, len(payload)) for kind, _, _, payload in client.sent()] == [(frames.DATA, 7)]
    assert client.connection.is_open(1)
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 100}))
    kinds = [(kind, len(payload)) for kind, _, _, payload in client.sent() if kind != frames.SETTINGS]
    assert kinds[0] == (frames.DATA, 8)
    assert kinds[1][0] == frames.HEADERS
    assert not client.connection.is_open(1)


@with_client()
def test_reply_waits_for_the_window_of_the_connection(client: Client) -> None:
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 20}))
    client.call(1)
    client.sent()
    client.connection.reply(1, bytes(100_000))
    sizes = [len(payload) for kind, _, _, payload in client.sent() if kind == frames.DATA]
    assert sum(sizes) == frames.DEFAULT_WINDOW
    assert max(sizes) == frames.DEFAULT_FRAME_BYTES
    client.send(frames.window_update(0, 1 << 20))
    assert client.sent()[-1][0] == frames.HEADERS


@with_client()
def test_window_of_the_client_is_raised_as_it_sends(client: Client) -> None:
    client.send(frame(frames.HEADERS, WHOLE, 1, BLOCK))
    message = prefixed(bytes(200_000))
    for begin in range(0, 100_000, 10_000):
        client.send(frame(frames.DATA, 0, 1, message[begin : begin + 10_000]))
    raised = [
        int.from_bytes(payload, "big")
        for kind, _, _, payload in client.sent()
        if kind == frames.WINDOW_UPDATE
    ]
    assert sum(raised) >= 80_000


@with_client()
def test_cancelled_call_is_forgotten(client: Client) -> None:
    client.call(1)
    client.send(frames.reset(1, ErrorCode.CANCEL))
    assert client.calls[0].is_cancelled
    client.sent()
    client.connection.reply(1, b"too late")
    assert client.sent() == []
    client.call(3)
    assert len(client.begun) == 2


@with_client()
def test_end_of_connection_cancels_calls(client: Client) -> None:
    client.call(1)
    client.connection.connection_lost(None)
    assert client.calls[0].is_cancelled


@with_client()
def test_ping_is_answered(client: Client) -> None:
    client.send(frame(frames.PING, 0, 0, b"12345678"), frame(frames.PING, frames.ACK, 0, b"87654321"))
    assert client.sent() == [(frames.PING, frames.ACK, 0, b"12345678")]


@with_client()
def test_client_that_does_not_read_is_not_read_from(client: Client) -> None:
    client.connection.pause_writing()
    assert client.transport.is_paused
    client.connection.resume_writing()
    assert not client.transport.is_paused


@with_client(message_bytes=100)
def test_too_long_message_is_refused_by_its_length(client: Client) -> None:
    client.send(frame(frames.HEADERS, WHOLE, 1, BLOCK), frame(frames.DATA, 0, 1, prefixed(bytes(101))[:8]))
    assert client.sent()[-1] == (frames.RST_STREAM, 0, 1, bytes(4))
    # What is on its way is ignored.
    client.send(frame(frames.DATA, ENDS, 1, bytes(50)))
    client.call(3, bytes(101))
    assert client.status() == "8"
    client.call(5, bytes(100))
    assert client.messages == [bytes(100)]


@with_client(buffered_bytes=50)
def test_unfinished_messages_are_limited_together(client: Client) -> None:
    half = prefixed(bytes(100))[:20]
    for stream in (1, 3, 5):
        client.send(frame(frames.HEADERS, WHOLE, stream, BLOCK), frame(frames.DATA, 0, stream, half))
    assert [client.connection.is_open(stream) for stream in (1, 3, 5)] == [True, True, False]
    # Their place is free again.
    client.send(frames.reset(1, ErrorCode.CANCEL), frame(frames.HEADERS, WHOLE, 7, BLOCK))
    client.send(frame(frames.DATA, 0, 7, half))
    assert client.connection.is_open(7)


@with_client()
def test_frames_without_a_larger_window_retry_no_stalled_reply(client: Client) -> None:
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))
    for stream in range(1, 201, 2):
        client.call(stream)
        client.connection.reply(stream, bytes(20))
    client.sent()
    retried = []
    send_pending = client.connection._send_pending

    def count(number: int, stream: Any) -> None:
        retried.append(number)
        send_pending(number, stream)

    client.connection._send_pending = count  # type: ignore[method-assign]
    client.send(frames.settings({}) * 1_000)
    client.send(frames.window_update(0, 1) * 1_000)
    assert retried == []
    client.send(frames.window_update(3, 1) * 10)
    assert retried == [3] * 10
    retried.clear()
    client.send(*(frames.settings({frames.INITIAL_WINDOW_SIZE: 11 + n % 2}) for n in range(1_000)))
    assert len(retried) == 100


@with_client(transfer_seconds=0.0)
def test_request_that_is_not_complete_in_time_ends(client: Client) -> None:
    client.send(frame(frames.HEADERS, WHOLE, 1, BLOCK), frame(frames.DATA, 0, 1, prefixed(b"hello")[:3]))
    client.connection._check()
    assert client.status() == "4"
    assert client.held_bytes == 0
    client.call(3)
    client.connection._check()
    assert client.connection.is_open(3)


@with_client(transfer_seconds=0.0)
def test_reply_that_is_not_taken_in_time_is_reset(client: Client) -> None:
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))
    client.call(1)
    client.connection.reply(1, bytes(20))
    assert client.held_bytes == 15
    client.connection._check()
    assert client.sent()[-1] == (frames.RST_STREAM, 0, 1, ErrorCode.CANCEL.to_bytes(4, "big"))
    assert client.held_bytes == 0


@with_client(total_bytes=50)
def test_bytes_of_all_connections_are_limited_together(client: Client) -> None:
    client.held_bytes = 45
    client.send(frame(frames.HEADERS, WHOLE, 1, BLOCK), frame(frames.DATA, 0, 1, prefixed(bytes(100))[:20]))
    assert client.status() == "8"
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 10}))
    client.call(3)
    client.sent()
    client.connection.reply(3, bytes(20))
    assert client.sent()[-1] == (frames.RST_STREAM, 0, 3, ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big"))
    assert client.held_bytes == 45
    client.call(5)
    assert client.messages[-1] == b"hello"


@with_client(transfer_seconds=0.0)
def test_client_that_never_reads_is_cut_off(client: Client) -> None:
    client.connection.pause_writing()
    client.connection._check()
    assert client.transport.is_closed


@with_client(streams=2)
def test_too_many_calls_are_refused(client: Client) -> None:
    for stream in (1, 3, 5):
        client.call(stream)
    assert client.sent() == [(frames.RST_STREAM, 0, 5, ErrorCode.REFUSED_STREAM.to_bytes(4, "big"))]
    client.connection.reply(1, b"")
    client.call(7)
    assert [stream for stream, _, _ in client.begun] == [1, 3, 7]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"", "13"),
        (b"\0\0\0", "13"),
        (prefixed(b"hello")[:-1], "13"),
        (prefixed(b"hello") + b"x", "13"),
        (prefixed(b"hello", compressed=True), "12"),
    ],
)
def test_anything_but_one_plain_message_is_an_error(message: bytes, status: str) -> None:
    @with_client()
    def check(client: Client) -> None:
        for pieces in ([message], [message[:1], message[1:]]):
            number = client.connection._last_stream + 2 if client.connection._last_stream else 1
            client.send(frame(frames.HEADERS, WHOLE, number, BLOCK))
            client.send(*(frame(frames.DATA, 0, number, piece) for piece in pieces))
            if client.connection.is_open(number):
                client.send(frame(frames.DATA, ENDS, number, b""))
            assert client.status() == status
        assert not client.transport.is_closed

    check()


@with_client()
def test_request_without_a_message_is_an_error(client: Client) -> None:
    client.send(frame(frames.HEADERS, WHOLE | ENDS, 1, BLOCK))
    assert client.status() == "13"


@with_client()
def test_other_requests_than_of_grpc_are_refused(client: Client) -> None:
    for number, headers in enumerate(
        ([(":method", "GET"), HEADERS[2]], [HEADERS[0], ("content-type", "text/html")])
    ):
        block = hpack.Encoder().encode(headers)
        client.send(frame(frames.HEADERS, WHOLE | (ENDS if number else 0), 2 * number + 1, block))
        found = client.sent()
        assert decoded(found[0][3], hpack.Decoder()) == {":status": "415"}
    assert client.begun == []


E = ErrorCode
VIOLATIONS = {
    "even stream": (E.PROTOCOL_ERROR, frame(frames.HEADERS, WHOLE, 2, BLOCK)),
    "headers of stream 0": (E.PROTOCOL_ERROR, frame(frames.HEADERS, WHOLE, 0, BLOCK)),
    "data of stream 0": (E.PROTOCOL_ERROR, frame(frames.DATA, 0, 0, b"x")),
    "data without headers": (E.PROTOCOL_ERROR, frame(frames.DATA, 0, 1, b"x")),
    "reset without a stream": (E.PROTOCOL_ERROR, frames.reset(1, E.CANCEL)),
    "push": (E.PROTOCOL_ERROR, frame(frames.PUSH_PROMISE, 0, 1, bytes(8))),
    "frame of another stream between headers": (
        E.PROTOCOL_ERROR,
        frame(frames.HEADERS, 0, 1, BLOCK[:2]) + frame(frames.CONTINUATION, WHOLE, 3, BLOCK[2:]),
    ),
    "continuation of nothing": (E.PROTOCOL_ERROR, frame(frames.CONTINUATION, WHOLE, 1, BLOCK)),
    "empty continuation": (
        E.ENHANCE_YOUR_CALM,
        frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.CONTINUATION, 0, 1, b""),
    ),
    "endless headers": (
        E.ENHANCE_YOUR_CALM,
        frame(frames.HEADERS, 0, 1, BLOCK) + 2 * frame(frames.CONTINUATION, 0, 1, bytes(10_000)),
    ),
    "damaged headers": (E.COMPRESSION_ERROR, frame(frames.HEADERS, WHOLE, 1, b"\x80")),
    "more padding than data": (
        E.PROTOCOL_ERROR,
        frame(frames.HEADERS, WHOLE | frames.PADDED, 1, b"\x09" + BLOCK[:3]),
    ),
    "short priority": (E.PROTOCOL_ERROR, frame(frames.HEADERS, WHOLE | frames.HAS_PRIORITY, 1, bytes(4))),
    "frame too large": (E.FRAME_SIZE_ERROR, b"\x00\x40\x01" + bytes(6)),
    "short ping": (E.PROTOCOL_ERROR, frame(frames.PING, 0, 0, b"1234567")),
    "settings of a stream": (E.PROTOCOL_ERROR, frame(frames.SETTINGS, 0, 1, b"")),
    "half a setting": (E.FRAME_SIZE_ERROR, frame(frames.SETTINGS, 0, 0, b"12345")),
    "initial window too large": (
        E.FLOW_CONTROL_ERROR,
        frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}),
    ),
    "frames too small": (E.PROTOCOL_ERROR, frames.settings({frames.MAX_FRAME_SIZE: 100})),
    "window raised by nothing": (E.PROTOCOL_ERROR, frames.window_update(0, 0)),
    "window raised in too few bytes": (E.PROTOCOL_ERROR, frame(frames.WINDOW_UPDATE, 0, 0, b"123")),
    "window too large": (E.FLOW_CONTROL_ERROR, frames.window_update(0, frames.MAX_WINDOW)),
    "window of a stream too large": (
        E.FLOW_CONTROL_ERROR,
        frame(frames.HEADERS, WHOLE, 1, BLOCK) + frames.window_update(1, frames.MAX_WINDOW),
    ),
    "data behind the end": (
        E.PROTOCOL_ERROR,
        frame(frames.HEADERS, WHOLE, 1, BLOCK)
        + frame(frames.DATA, ENDS, 1, prefixed(b""))
        + frame(frames.DATA, ENDS, 1, prefixed(b"")),
    ),
    "headers in the midst of a message": (
        E.PROTOCOL_ERROR,
        frame(frames.HEADERS, WHOLE, 1, BLOCK) + frame(frames.HEADERS, WHOLE, 1, BLOCK),
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation_of_the_protocol_closes_the_connection(name: str) -> None:
    code, data = VIOLATIONS[name]

    @with_client()
    def check(client: Client) -> None:
        client.send(data)
        assert client.reason() is code
        # Nothing that comes after it is looked at.
        client.send(frame(frames.PING, 0, 0, bytes(8)))
        assert client.sent() == []

    check()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0", frames.PREFACE + frame(frames.PING, 0, 0, bytes(8))]
)
def test_anything_but_a_client_of_http2_is_refused(data: bytes) -> None:
    async def inside() -> None:
        client = Client()
        client.sent()
        client.send(data)
        assert client.reason() is ErrorCode.PROTOCOL_ERROR
        client.connection.connection_lost(None)

    asyncio.run(inside())


def test_connection_without_a_handshake_is_closed() -> None:
    async def inside() -> None:
        client = Client(handshake_seconds=0.0)
        client.connection._check()
        assert client.transport.is_closed
        client.connection.connection_lost(None)

    asyncio.run(inside())


@with_client(ping_seconds=0.0, ping_timeout_seconds=0.0)
def test_vanished_client_is_found_by_a_ping(client: Client) -> None:
    client.call(1)
    client.connection._check()
    assert client.sent()[-1][0] == frames.PING
    client.send(frame(frames.PING, frames.ACK, 0, bytes(8)))
    client.connection._check()
    client.connection._check()
    assert client.transport.is_closed


@with_client(idle_seconds=0.0, ping_timeout_seconds=0.0)
def test_idle_client_is_asked_to_connect_again(client: Client) -> None:
    client.call(1)
    client.connection._check()
    client.sent()
    assert not client.transport.is_closed
    client.connection.reply(1, b"")
    client.connection._check()
    assert client.sent()[-1][0] == frames.GOAWAY
    assert not client.transport.is_closed
    # A call that was on its way is answered.
    client.call(3)
    client.connection._check()
    client.connection.reply(3, b"there")
    assert prefixed(b"there") in [payload for _, _, _, payload in client.sent()]
    client.connection._check()
    assert client.transport.is_closed


@with_client()
def test_stopping_server_refuses_calls(client: Client) -> None:
    client.is_stopping = True
    client.call(1)
    assert client.begun == []
    assert client.sent()[0][0] == frames.RST_STREAM
