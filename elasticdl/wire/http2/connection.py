"""One connection of a gRPC client: from bytes to calls, and from replies to bytes.

The subset of HTTP/2 that unary calls need: a client sends headers and one message, the server answers with headers, one
message and a status. Flow control is complete; priorities are ignored, as RFC 9113 allows; no frame is pushed.

Failure modes
    A frame that breaks the protocol: GOAWAY with the reason, and the connection is closed. A message that is too long,
    or more of unfinished messages than a connection may have: RESOURCE_EXHAUSTED, as soon as the length is known.
    A client that does not read: nothing more is read from it. A request or a reply that is not complete in time: the
    call ends. A client that vanished: it answers no ping, and its calls are cancelled, as those of a client that has
    closed its connection. All connections together: their number and the bytes that they hold are limited, too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from dataclasses import dataclass
from typing import Any, Protocol, cast

import grpc

from elasticdl.wire.http2 import frames, header_blocks
from elasticdl.wire.http2.frames import ConnectionFailed, ErrorCode, frame
from elasticdl.wire.http2.header_blocks import Headers, RequestHeaders

log = logging.getLogger("elasticdl.wire")

_FRAME = struct.Struct(">HBBBL")
_STREAM = frames.MAX_WINDOW
# Before each message: whether it is compressed, and its length.
_PREFIX_BYTES = 5
_PREFIX = struct.Struct(">?L")
# The window for what a client may send is raised in steps of this size.
_CREDIT_STEP = frames.DEFAULT_WINDOW // 2
_READ_BYTES = 32 << 10
_PING = b"elastic!"
_SETTINGS_ACK = frame(frames.SETTINGS, frames.ACK, 0, b"")


@dataclass(frozen=True, kw_only=True)
class Limits:
    message_bytes: int = 4 << 20
    header_bytes: int = 16 << 10
    # Calls under way on one connection.
    streams: int = 1_000
    # Of messages that are not complete yet, of one connection.
    buffered_bytes: int = 32 << 20
    # Of all connections: incomplete messages, and replies that wait for the client.
    total_bytes: int = 128 << 20
    connections: int = 5_000
    # From the connection to the client's first frame.
    handshake_seconds: float = 10.0
    # Without a call.
    idle_seconds: float = 60.0
    # Without a byte from the client; then it is sent a ping, and has so long to answer.
    ping_seconds: float = 20.0
    ping_timeout_seconds: float = 10.0
    # For the rest of a request after its headers, and for a reply whose client does not take it.
    transfer_seconds: float = 30.0
    # How often these times are checked.
    check_seconds: float = 2.0


class RunningCall(Protocol):
    def cancel(self) -> Any: ...


class CallHandler(Protocol):
    """What a connection needs of its server."""

    # Of all connections, changed by each of them.
    held_bytes: int

    @property
    def is_stopping(self) -> bool: ...

    def begin(
        self, connection: Connection, stream: int, headers: Headers, message: bytes
    ) -> RunningCall | None: ...

    def opened(self, connection: Connection) -> bool:
        """False: there are too many."""

    def closed(self, connection: Connection) -> None: ...


class _Stream:
    """A call under way: what has come of its message, or what is left of its reply."""

    __slots__ = ("call", "credit", "has_ended", "headers", "held", "pending", "received")

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.received = bytearray()
        # The client has sent everything.
        self.has_ended = False
        self.call: RunningCall | None = None
        # What may be sent on it, relative to the initial window of all.
        self.credit = 0
        self.pending = memoryview(b"")
        # Bytes that are counted for it.
        self.held = 0


class Connection(asyncio.BufferedProtocol):
    """The server's end of a connection. Used by the thread of the event loop alone."""

    def __init__(self, handler: CallHandler, limits: Limits) -> None:
        self.peer = ""
        self._handler = handler
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._headers = RequestHeaders(limits.header_bytes)
        # asyncio would allocate 256 KiB for each read, which takes longer than the read.
        self._input = bytearray(_READ_BYTES)
        # Bytes of a frame that is not complete.
        self._rest = b""
        self._has_preface = self._has_settings = False
        # Of headers that go on in the next frame.
        self._block: tuple[int, bytearray, bool] | None = None
        self._streams: dict[int, _Stream] = {}
        # Those whose reply waits for the window of the connection, and whether that has been raised.
        self._stalled: dict[int, _Stream] = {}
        self._is_window_raised = self._is_initial_window_raised = False
        # Since when the client has owed something: the rest of a request, or a larger window. The earliest first.
        self._owed_since: dict[int, float] = {}
        self._paused_at: float | None = None
        self._last_stream = 0
        self._buffered = 0
        # What the client has sent since its window was last raised.
        self._uncredited = 0
        self._window = self._initial_window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES
        # Written together at the end of what has been read.
        self._output: list[bytes] = []
        self._is_reading = False
        self._heard_at = self._called_at = self._loop.time()
        self._pinged_at: float | None = None
        # The client was asked to close the connection.
        self._drained_at: float | None = None
        self._timer = self._loop.call_later(limits.check_seconds, self._check)

    # -- the transport ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.peer = _peer(transport.get_extra_info("peername"))
        # asyncio does it for sockets of its own making only. A reply must not wait for the acknowledgement of the last.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._handler.opened(self):
            log.warning("Refusing the connection of %s: there are too many", self.peer)
            self._transport.abort()
            return
        values = {
            frames.MAX_CONCURRENT_STREAMS: self._limits.streams,
            # A message needs no more than the first window of its stream.
            frames.INITIAL_WINDOW_SIZE: self._limits.message_bytes + _PREFIX_BYTES,
            frames.MAX_HEADER_LIST_SIZE: self._limits.header_bytes,
        }
        self._send(frames.settings(values))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._input

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(bytes(memoryview(self._input)[:nbytes]))

    def receive(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._heard_at = self._loop.time()
        self._is_reading = True
        try:
            self._read(self._rest + data if self._rest else data)
            self._send_stalled()
        except ConnectionFailed as error:
            log.debug("Closing the connection of %s: %s", self.peer, error)
            self._send(frames.goaway(self._last_stream, error.code))
            self.close()
        finally:
            self._is_reading = False
            self._flush()

    def pause_writing(self) -> None:
        self._paused_at = self._loop.time()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        # It has read, even though nothing was read from it.
        self._paused_at, self._heard_at = None, self._loop.time()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._transport = None
        self._cancel_calls()
        self._handler.closed(self)

    def drain(self) -> None:
        """Asks the client to make its next calls over a new connection. Those under way are answered."""
        if self._drained_at is None:
            self._drained_at = self._loop.time()
            self._send(frames.goaway(_STREAM, ErrorCode.NO_ERROR))

    def close(self) -> None:
        """Closes the connection once everything is sent."""
        self._cancel_calls()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _cancel_calls(self) -> None:
        streams, self._streams, self._stalled = self._streams, {}, {}
        self._owed_since.clear()
        for stream in streams.values():
            self._hold(stream, 0)
            if stream.call is not None:
                stream.call.cancel()

    def _send(self, data: bytes) -> None:
        self._output.append(data)
        if not self._is_reading:
            self._flush()

    def _flush(self) -> None:
        if self._output:
            output, self._output = self._output, []
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(b"".join(output))

    def _check(self) -> None:
        """Closes the connection of a client that is not there any more, or has nothing to say."""
        self._timer = self._loop.call_later(self._limits.check_seconds, self._check)
        now, limits = self._loop.time(), self._limits
        if self._transport is None:
            return
        self._end_overdue(now - limits.transfer_seconds)
        if self._paused_at is not None:
            if now - self._paused_at >= limits.transfer_seconds:
                self._transport.abort()
            return
        if not self._has_settings:
            if now - self._called_at >= limits.handshake_seconds:
                self._transport.abort()
        elif self._pinged_at is not None and self._heard_at < self._pinged_at:
            if now - self._pinged_at >= limits.ping_timeout_seconds:
                self._transport.abort()
        elif now - self._heard_at >= limits.ping_seconds:
            self._pinged_at = now
            self._send(frame(frames.PING, 0, 0, _PING))
        elif not self._streams and now - self._called_at >= limits.idle_seconds:
            if self._drained_at is None:
                self.drain()
            elif now - self._drained_at >= limits.ping_timeout_seconds:
                self.close()

    def _end_overdue(self, before: float) -> None:
        """Ends calls whose client has owed something since then."""
        for number, since in list(self._owed_since.items()):
            if since > before:
                break
            stream = self._streams[number]
            if stream.pending:
                self._forget(number)
                self._send(frames.reset(number, ErrorCode.CANCEL))
            else:
                self.fail(number, grpc.StatusCode.DEADLINE_EXCEEDED, "The message did not come in time.")

    # -- frames ----------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        if not self._has_preface:
            size = len(frames.PREFACE)
            if data[:size] != frames.PREFACE[:end]:
                raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "it does not speak HTTP/2")
            if end < size:
                self._rest = data
                return
            self._has_preface = True
            at = size
        while end - at >= frames.HEADER_BYTES:
            high, low, kind, flags, stream = _FRAME.unpack_from(data, at)
            size = high << 8 | low
            if size > frames.DEFAULT_FRAME_BYTES:
                raise ConnectionFailed(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size:,} bytes")
            start = at + frames.HEADER_BYTES
            if start + size > end:
                break
            at = start + size
            self._take(kind, flags, stream & _STREAM, data[start:at])
        self._rest = data[at:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self._has_settings and kind != frames.SETTINGS:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._block is not None and (kind != frames.CONTINUATION or stream != self._block[0]):
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "headers are not continued")
        if kind == frames.DATA:
            self._take_data(flags, stream, payload)
        elif kind == frames.HEADERS:
            self._take_headers(flags, stream, payload)
        elif kind == frames.CONTINUATION:
            self._continue_headers(flags, payload)
        elif kind == frames.WINDOW_UPDATE:
            self._raise_window(stream, payload)
        elif kind == frames.PING:
            _expect(len(payload) == 8, "PING of a wrong length")
            if not flags & frames.ACK:
                self._send(frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.SETTINGS:
            self._take_settings(flags, stream, payload)
        elif kind == frames.RST_STREAM:
            _expect(len(payload) == 4 and 0 < stream <= self._last_stream, "RST_STREAM without a stream")
            gone = self._forget(stream)
            if gone is not None and gone.call is not None:
                gone.call.cancel()
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "clients push nothing")
        # The others change nothing here, and unknown ones are to be ignored.

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        _expect(stream == 0, "SETTINGS of a stream")
        self._has_settings = True
        if flags & frames.ACK:
            return
        for name, value in frames.read_settings(payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                if value > frames.MAX_WINDOW:
                    raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value:,} bytes")
                self._is_initial_window_raised |= value > self._initial_window
                self._initial_window = value
            elif name == frames.MAX_FRAME_SIZE:
                _expect(frames.DEFAULT_FRAME_BYTES <= value < 1 << 24, f"frames of {value:,} bytes")
                self._frame_bytes = value
        self._send(_SETTINGS_ACK)

    # -- requests --------------------------------------------------------------------------------------------

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        _expect(stream % 2 == 1, "HEADERS without a stream of the client")
        if flags & frames.PADDED:
            payload = frames.without_padding(payload)
        if flags & frames.HAS_PRIORITY:
            _expect(len(payload) >= 5, "HEADERS of a wrong length")
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._open(stream, payload, bool(flags & frames.END_STREAM))
        else:
            self._block = (stream, bytearray(payload), bool(flags & frames.END_STREAM))

    def _continue_headers(self, flags: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        stream, block, ends = self._block
        block += payload
        # Empty frames would never come to an end.
        if len(block) > self._limits.header_bytes or not payload:
            raise ConnectionFailed(ErrorCode.ENHANCE_YOUR_CALM, "too long headers")
        if flags & frames.END_HEADERS:
            self._block = None
            self._open(stream, bytes(block), ends)

    def _open(self, number: int, block: bytes, ends: bool) -> None:
        headers = self._headers.decode(block)
        stream = self._streams.get(number)
        if stream is not None:
            # Trailers.
            _expect(ends and not stream.has_ended, "HEADERS in the midst of a message")
            self._complete(number, stream, bytes(stream.received))
            return
        if number <= self._last_stream:
            # Of a call that was answered before its end.
            return
        self._last_stream = number
        self._called_at = self._heard_at
        if len(self._streams) >= self._limits.streams or self._handler.is_stopping:
            self._send(frames.reset(number, ErrorCode.REFUSED_STREAM))
        elif headers.get(":method") != "POST" or not headers.get("content-type", "").startswith(
            "application/grpc"
        ):
            flags = frames.END_HEADERS | frames.END_STREAM
            self._send(frame(frames.HEADERS, flags, number, header_blocks.UNSUPPORTED_MEDIA_TYPE))
            if not ends:
                self._send(frames.reset(number, ErrorCode.NO_ERROR))
        else:
            stream = self._streams[number] = _Stream(headers)
            self._owed_since[number] = self._heard_at
            if ends:
                self._complete(number, stream, b"")

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        self._uncredited += len(payload)
        if self._uncredited >= _CREDIT_STEP:
            self._send(frames.window_update(0, self._uncredited))
            self._uncredited = 0
        if flags & frames.PADDED:
            payload = frames.without_padding(payload)
        stream = self._streams.get(number)
        if stream is None:
            _expect(0 < number <= self._last_stream, "DATA without a stream")
            return
        _expect(not stream.has_ended, "DATA behind the end of a stream")
        ends = flags & frames.END_STREAM
        if ends and not stream.received:
            self._complete(number, stream, payload)
            return
        stream.received += payload
        self._hold(stream, len(stream.received))
        if self._is_acceptable(number, stream) and ends:
            self._complete(number, stream, bytes(stream.received))

    def _is_acceptable(self, number: int, stream: _Stream) -> bool:
        received = stream.received
        if self._holds_too_much():
            self.fail(number, grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many unfinished messages.")
            return False
        if len(received) < _PREFIX_BYTES:
            return True
        _, size = _PREFIX.unpack_from(received)
        if size > self._limits.message_bytes:
            self._reject_size(number, size)
            return False
        if len(received) > _PREFIX_BYTES + size:
            self.fail(number, grpc.StatusCode.INTERNAL, "The call takes one message.")
            return False
        return True

    def _reject_size(self, number: int, size: int) -> None:
        message = f"A message of {size:,} bytes; at most {self._limits.message_bytes:,} are accepted."
        self.fail(number, grpc.StatusCode.RESOURCE_EXHAUSTED, message)

    def _complete(self, number: int, stream: _Stream, message: bytes) -> None:
        stream.has_ended = True
        stream.received.clear()
        self._hold(stream, 0)
        self._owed_since.pop(number, None)
        is_compressed, size = _PREFIX.unpack_from(message) if len(message) >= _PREFIX_BYTES else (False, -1)
        if size > self._limits.message_bytes:
            self._reject_size(number, size)
        elif size != len(message) - _PREFIX_BYTES:
            self.fail(number, grpc.StatusCode.INTERNAL, "The call takes one message.")
        elif is_compressed:
            self.fail(number, grpc.StatusCode.UNIMPLEMENTED, "Compressed messages are not accepted.")
        else:
            stream.call = self._handler.begin(self, number, stream.headers, message[_PREFIX_BYTES:])

    # -- replies ---------------------------------------------------------------------------------------------

    def is_open(self, number: int) -> bool:
        """Whether the client waits for the reply."""
        return number in self._streams

    def reply(self, number: int, message: bytes) -> None:
        """Ends the call with this message. To a client that has given up, nothing is sent."""
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.call = None
        stream.pending = memoryview(_PREFIX.pack(False, len(message)) + message)
        self._output.append(frame(frames.HEADERS, frames.END_HEADERS, number, header_blocks.RESPONSE))
        self._send_pending(number, stream)
        if self._holds_too_much() and self._forget(number) is not None:
            self._send(frames.reset(number, ErrorCode.ENHANCE_YOUR_CALM))

    def fail(self, number: int, code: grpc.StatusCode, message: str) -> None:
        """Ends the call with an error."""
        stream = self._forget(number)
        if stream is None:
            return
        flags = frames.END_HEADERS | frames.END_STREAM
        block = header_blocks.RESPONSE + header_blocks.status(code.value[0], message)
        self._send(frame(frames.HEADERS, flags, number, block))
        if not stream.has_ended:
            self._send(frames.reset(number, ErrorCode.NO_ERROR))

    def _send_pending(self, number: int, stream: _Stream) -> None:
        while stream.pending:
            size = min(
                self._window, self._initial_window + stream.credit, self._frame_bytes, len(stream.pending)
            )
            if size <= 0:
                # A stream without a window of its own waits for that, and not for the connection's.
                if self._initial_window + stream.credit > 0:
                    self._stalled[number] = stream
                if number not in self._owed_since or len(stream.pending) < stream.held:
                    self._owed_since.pop(number, None)
                    self._owed_since[number] = self._loop.time()
                self._hold(stream, len(stream.pending))
                if not self._is_reading:
                    self._flush()
                return
            self._output.append(frame(frames.DATA, 0, number, stream.pending[:size]))
            stream.pending = stream.pending[size:]
            stream.credit -= size
            self._window -= size
        self._forget(number)
        self._called_at = self._loop.time()
        self._send(frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number, header_blocks.OK))

    def _send_stalled(self) -> None:
        """Goes on with replies for which the windows were raised: once for all frames that were read together."""
        if self._is_initial_window_raised:
            waiting = {number: stream for number, stream in self._streams.items() if stream.pending}
        elif self._is_window_raised:
            waiting = self._stalled
        else:
            return
        self._is_initial_window_raised = self._is_window_raised = False
        for number, stream in list(waiting.items()):
            if self._window <= 0:
                # Those that come later stay where they are; with a window of their own, they wait for this one.
                if self._initial_window + stream.credit > 0:
                    self._stalled[number] = stream
                continue
            self._stalled.pop(number, None)
            self._send_pending(number, stream)

    def _raise_window(self, number: int, payload: bytes) -> None:
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        _expect(len(payload) == 4 and increment > 0, "a wrong WINDOW_UPDATE")
        stream = self._streams.get(number)
        if number == 0:
            self._is_window_raised |= self._window <= 0
            self._window += increment
        elif stream is not None:
            stream.credit += increment
        if max(self._window, self._initial_window + stream.credit if stream else 0) > frames.MAX_WINDOW:
            raise ConnectionFailed(ErrorCode.FLOW_CONTROL_ERROR, "a window of more than 2 GiB")
        if stream is not None and stream.pending:
            self._send_pending(number, stream)

    def _hold(self, stream: _Stream, size: int) -> None:
        """Counts what is kept in memory for a stream."""
        self._buffered += size - stream.held
        self._handler.held_bytes += size - stream.held
        stream.held = size

    def _holds_too_much(self) -> bool:
        limits = self._limits
        return self._buffered > limits.buffered_bytes or (
            self._handler.held_bytes > limits.total_bytes and self._buffered > 0
        )

    def _forget(self, number: int) -> _Stream | None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._stalled.pop(number, None)
            self._owed_since.pop(number, None)
            self._hold(stream, 0)
            stream.received.clear()
        return stream


def _expect(is_valid: bool, message: str) -> None:
    if not is_valid:
        raise ConnectionFailed(ErrorCode.PROTOCOL_ERROR, message)


def _peer(name: Any) -> str:
    """As gRPC writes the address of a client."""
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
