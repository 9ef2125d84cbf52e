"""Header blocks of HTTP/2 (HPACK, RFC 7541): the requests of one connection, and the responses of a gRPC server.

From its second call of a method on, a gRPC client sends the headers as references into a table, a byte each. As long as
the table stays as it is, such a block means the same. It is decoded once and remembered.
"""

from __future__ import annotations

from urllib.parse import quote

import hpack

from elasticdl.wire.http2.frames import ConnectionFailed, ErrorCode

Headers = dict[str, str]

# Methods of a service, with the few headers that clients vary.
_MOST_REMEMBERED = 64
# Clients take headers of 8 KiB in all.
_MAX_MESSAGE_BYTES = 4_096
# The largest index that fits into the first byte of a reference would say that more bytes follow.
_MORE_FOLLOWS = 0xFF
_REFERENCE = 0x80
# Names in the static table: the first one with its value.
_STATUS_200 = b"\x88"
_STATUS_NAME, _CONTENT_TYPE_NAME = 8, 31


class RequestHeaders:
    """Decodes the header blocks of one connection, in the order in which they came."""

    def __init__(self, max_bytes: int) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=max_bytes)
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """The last value of each header. Raises `ConnectionFailed`: after an error the table is not known any more."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise ConnectionFailed(
                ErrorCode.COMPRESSION_ERROR, f"headers cannot be decoded: {error}"
            ) from None
        if not _has_references_only(block):
            # It may have changed the table.
            self._known.clear()
        elif len(self._known) < _MOST_REMEMBERED:
            self._known[block] = headers
        return headers


def _has_references_only(block: bytes) -> bool:
    return bool(block) and min(block) >= _REFERENCE and _MORE_FOLLOWS not in block


def _literal(name: bytes, value: bytes) -> bytes:
    """A header that enters no table."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def _static(name: int, value: bytes) -> bytes:
    """The same, by the number of the name in the static table."""
    return _integer(name, 4) + _length(len(value)) + value


def _length(size: int) -> bytes:
    return _integer(size, 7)


def _integer(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    encoded = bytearray((most,))
    value -= most
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_CONTENT_TYPE = _static(_CONTENT_TYPE_NAME, b"application/grpc")
RESPONSE = _STATUS_200 + _CONTENT_TYPE
# What is no gRPC request, as gRPC over HTTP/2 asks for.
UNSUPPORTED_MEDIA_TYPE = _static(_STATUS_NAME, b"415")


def status(code: int, message: str = "") -> bytes:
    """The trailers of a call."""
    trailers = _literal(b"grpc-status", str(code).encode())
    if message:
        trailers += _literal(b"grpc-message", _quoted(message).encode())
    return trailers


def _quoted(message: str) -> str:
    """As gRPC encodes it: printable ASCII stays, but for the percent sign."""
    quoted = quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", errors="replace")
    if len(quoted) <= _MAX_MESSAGE_BYTES:
        return quoted
    # Not within an escape.
    escape = quoted.rfind("%", _MAX_MESSAGE_BYTES - 2, _MAX_MESSAGE_BYTES)
    return quoted[: _MAX_MESSAGE_BYTES if escape < 0 else escape]


OK = status(0)
