"""Records by their index, through several files, of every compressor; damage is named with its place."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticai_api.errors import RecordIOError
from elasticai_api.io.recordio_reader import RecordIOReader
from elasticdl.data.formats.recordio import Compressor, RecordIOWriter

RECORDS = [str(number).encode() * (number % 5) for number in range(57)]
Write = Callable[..., list[Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Three files with all records, written by the writer of elasticdl."""

    def files(compressor: Compressor = "none") -> list[Path]:
        paths = []
        for number, part in enumerate((RECORDS[:20], RECORDS[20:21], RECORDS[21:])):
            paths.append(tmp_path / f"{number}.recordio")
            with RecordIOWriter(paths[-1], compressor, max_chunk_records=7) as writer:
                for record in part:
                    writer.write(record)
        return paths

    return files


@pytest.mark.parametrize("compressor", ["none", "gzip", "snappy"])
def test_any_range(write: Write, compressor: Compressor) -> None:
    reader = RecordIOReader(write(compressor))
    assert len(reader) == 57
    for start, end in [(0, 57), (0, 0), (57, 57), (5, 9), (6, 8), (13, 29), (19, 22), (56, 57)]:
        assert list(reader.read_records(start, end)) == RECORDS[start:end]
    assert [reader[index] for index in range(57)] == RECORDS


def test_one_file_as_text_or_path(write: Write) -> None:
    path = write()[0]
    assert list(RecordIOReader(path).read_records(0, 20)) == RECORDS[:20]
    assert list(RecordIOReader(str(path)).read_records(0, 20)) == RECORDS[:20]


def test_no_such_records(write: Write) -> None:
    reader = RecordIOReader(write())
    for start, end in [(0, 58), (-1, 2), (3, 2)]:
        with pytest.raises(IndexError, match="there are 57"):
            reader.read_records(start, end)
    with pytest.raises(IndexError):
        reader[57]


def test_in_another_process(write: Write) -> None:
    reader = RecordIOReader(write())
    list(reader.read_records(0, 3))
    assert list(pickle.loads(pickle.dumps(reader)).read_records(18, 25)) == RECORDS[18:25]


def test_a_flipped_bit(write: Write) -> None:
    path = write("gzip")[0]
    content = bytearray(path.read_bytes())
    content[25] ^= 1
    path.write_bytes(content)
    reader = RecordIOReader([path])
    with pytest.raises(
        RecordIOError, match=r"0\.recordio: the chunk at byte 0 is damaged: its checksum is wrong"
    ):
        list(reader.read_records(0, 1))
    assert list(reader.read_records(7, 20)) == RECORDS[7:20]


def test_a_file_cut_short(write: Write) -> None:
    path = write()[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordIOError, match="the file ends in the middle of the chunk at byte"):
        RecordIOReader(path)
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(RecordIOError, match="the file ends in the middle of a header, at byte 0"):
        RecordIOReader(path)


def test_file_that_is_no_recordio_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b,c\n" * 10)
    with pytest.raises(RecordIOError, match="no chunk of RecordIO begins at byte 0"):
        RecordIOReader(path)


@pytest.mark.parametrize(
    ("records", "data", "words"),
    [
        (2, struct.pack("<I", 1) + b"x", "fewer records than the 2"),
        (1, struct.pack("<I", 5) + b"x", "ends in the middle of a record"),
        (1, struct.pack("<I", 1) + b"xyz", "more in it than the 1 records"),
    ],
)
def test_a_header_that_lies(tmp_path: Path, records: int, data: bytes, words: str) -> None:
    path = tmp_path / "x.recordio"
    path.write_bytes(struct.pack("<5I", 0x01020304, zlib.crc32(data), 0, len(data), records) + data)
    with pytest.raises(RecordIOError, match=words):
        list(RecordIOReader(path).read_records(0, 1))


def test_snappy_without_a_package_for_it(write: Write) -> None:
    code = (
        "import sys; sys.modules['cramjam'] = sys.modules['snappy'] = None\n"
        "from elasticai_api.io.recordio_reader import RecordIOReader\n"
        f"reader = RecordIOReader({str(write('snappy')[0])!r})\n"
        "print(len(reader)); list(reader.read_records(0, 1))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "20\n"
    assert "pip install cramjam" in done.stderr.splitlines()[-1]
