"""Remembered header blocks mean what HPACK says they mean, whatever the order in which they come."""

from __future__ import annotations

import random

import hpack
import pytest

from elasticdl.wire.http2 import header_blocks
from elasticdl.wire.http2.frames import ConnectionFailed, ErrorCode
from elasticdl.wire.http2.header_blocks import RequestHeaders

NAMES = ("a", "b", ":path", "te", "user-agent")


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_blocks_decodes_as_sent(seed: int) -> None:
    source = random.Random(seed)
    # A small table forgets its oldest entries, so that references change their meaning.
    encoder, decoder = hpack.Encoder(), RequestHeaders(16_384)
    encoder.header_table_size = source.choice((64, 256, 4_096))
    for _ in range(300):
        names = source.sample(NAMES, source.randint(1, len(NAMES)))
        sent = {name: str(source.randint(0, 6)) * source.choice((1, 1, 30)) for name in names}
        block = encoder.encode(list(sent.items()), huffman=source.random() < 0.5)
        assert decoder.decode(block) == sent


def test_block_of_references_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, decoder = hpack.Encoder(), RequestHeaders(16_384)
    first, second = (encoder.encode([(":method", "POST"), ("a", "b")]) for _ in range(2))
    assert first != second
    assert decoder.decode(first) == decoder.decode(second) == {":method": "POST", "a": "b"}
    monkeypatch.setattr(decoder._decoder, "decode", lambda block: pytest.fail("decoded again"))
    assert decoder.decode(second) == {":method": "POST", "a": "b"}


@pytest.mark.parametrize(
    "block", [b"\x80", b"\xff\xff\xff\xff\xff\x0f", b"\x40\x05ab", b"\xc8", b"\x00\x01\xff\x00"]
)
def test_damaged_block_fails_the_connection(block: bytes) -> None:
    with pytest.raises(ConnectionFailed) as error:
        RequestHeaders(16_384).decode(block)
    assert error.value.code is ErrorCode.COMPRESSION_ERROR


def test_headers_that_decode_to_more_than_the_limit_fail_the_connection() -> None:
    # A byte each refers to a header of 3,000.
    encoder, decoder = hpack.Encoder(), RequestHeaders(16_384)
    decoder.decode(encoder.encode([("a", "x" * 3_000)]))
    with pytest.raises(ConnectionFailed):
        decoder.decode(b"\xbe" * 100)


@pytest.mark.parametrize("message", ["", "plain: 100 %", "Größe\n", "x" * 10_000, "ß" * 10_000, "\ud800"])
def test_status_is_valid_and_short(message: str) -> None:
    block = header_blocks.RESPONSE + header_blocks.status(13, message)
    found = {str(name): str(value) for name, value in hpack.Decoder().decode(block)}
    assert (found[":status"], found["content-type"], found["grpc-status"]) == (
        "200",
        "application/grpc",
        "13",
    )
    assert ("grpc-message" in found) == bool(message)
    assert len(found.get("grpc-message", "")) <= 4_096
