"""Files are laid out byte by byte as the format says, in both directions."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.recordio import Compressor, RecordIOWriter

COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: bytes(cramjam.snappy.compress(data)),
    2: gzip.compress,
}
DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: bytes(cramjam.snappy.decompress(data)),
    2: gzip.decompress,
}


def chunk(compressor: int, records: list[bytes]) -> bytes:
    data = b"".join(len(record).to_bytes(4, "little") + record for record in records)
    stored = COMPRESS[compressor](data)
    header = b"\x04\x03\x02\x01" + struct.pack(
        "<IIII", zlib.crc32(stored), compressor, len(stored), len(records)
    )
    return header + stored


def test_reads_a_file_put_together_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "by-hand"
    path.write_bytes(
        chunk(0, [b"one", b"", b"three"])
        + chunk(1, [b"four" * 100])
        + chunk(2, [b"five", b"six"])
        + chunk(0, [])
    )
    reader = open_reader(str(path))
    assert reader.kind == "bytes"
    assert list(reader.read(0, len(reader))) == [b"one", b"", b"three", b"four" * 100, b"five", b"six"]


def test_reads_snappy_frames_with_all_kinds_of_pieces(tmp_path: Path) -> None:
    # A stream of its own with an uncompressed piece and one to be skipped, as other writers make them.
    data = (5).to_bytes(4, "little") + b"plain"
    crc = cramjam.snappy.compress(data)
    # Short data is stored uncompressed by the compressor itself: piece type 1 behind the stream identifier.
    assert bytes(crc)[10] == 1
    padding = b"\xfe\x03\x00\x00\x00\x00\x00"
    stored = bytes(crc)[:10] + padding + bytes(crc)[10:]
    path = tmp_path / "frames.recordio"
    path.write_bytes(
        b"\x04\x03\x02\x01" + struct.pack("<IIII", zlib.crc32(stored), 1, len(stored), 1) + stored
    )
    assert list(open_reader(str(path)).read(0, 1)) == [b"plain"]


@pytest.mark.parametrize(("name", "number"), [("none", 0), ("snappy", 1), ("gzip", 2)])
def test_recordio_writer_follows_the_format(tmp_path: Path, name: Compressor, number: int) -> None:
    path = tmp_path / "written"
    with RecordIOWriter(path, name, max_chunk_records=2) as writer:
        for record in (b"a" * 500, b"", b"c"):
            writer.write(record)
    content = path.read_bytes()
    found = []
    offset = 0
    while offset < len(content):
        magic, crc, compressor, size, count = struct.unpack_from("<4sIIII", content, offset)
        stored = content[offset + 20 : offset + 20 + size]
        assert magic == b"\x04\x03\x02\x01"
        assert compressor == number
        assert crc == zlib.crc32(stored)
        found.append((count, DECOMPRESS[compressor](stored)))
        offset += 20 + size
    assert found == [
        (2, b"\xf4\x01\x00\x00" + b"a" * 500 + b"\x00\x00\x00\x00"),
        (1, b"\x01\x00\x00\x00c"),
    ]


def test_the_default_is_snappy(tmp_path: Path) -> None:
    with RecordIOWriter(tmp_path / "x") as writer:
        writer.write(b"record")
    assert struct.unpack_from("<I", (tmp_path / "x").read_bytes(), 8) == (1,)


def test_the_same_records_make_the_same_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with RecordIOWriter(tmp_path / name, "gzip") as writer:
            writer.write(b"record")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    writer = RecordIOWriter(tmp_path / "x.recordio")
    writer.write(b"record" * 100_000)
    assert not (tmp_path / "x.recordio").exists()
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.recordio"]


def test_a_program_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail_in(writer: RecordIOWriter) -> None:
        writer.write(b"record" * 100_000)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), RecordIOWriter(tmp_path / "x.recordio") as writer:
        fail_in(writer)
    assert list(tmp_path.iterdir()) == []
