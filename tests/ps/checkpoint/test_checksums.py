"""The checksum of two pieces from the checksums of each."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.checkpoint.checksums import combined


@given(first=st.binary(max_size=300), second=st.binary(max_size=3000))
def test_as_if_read_together(first: bytes, second: bytes) -> None:
    assert combined(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_checksums_of_large_pieces_are_combined() -> None:
    first, second = bytes(range(256)) * 5000, bytes(reversed(range(256))) * 70_001
    assert combined(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
