"""Damaged files: every record is the one that was written or is named as bad, with file, offset and range."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from tests.data.conftest import ReadThrough

RECORDS = [b"record %03d " % number * (number % 5) for number in range(40)]


def offsets_of_chunks(path: Path) -> list[int]:
    content, offset, found = path.read_bytes(), 0, []
    while offset < len(content):
        found.append(offset)
        offset += 20 + struct.unpack_from("<I", content, offset + 12)[0]
    return found


@pytest.fixture
def file(tmp_path: Path, write_recordio: Callable[..., Path]) -> Path:
    """Ten chunks with four records each."""
    return write_recordio(tmp_path / "x.recordio", RECORDS, max_chunk_records=4)


def offset_in(where: str) -> int:
    found = re.search(r"byte (\d+)", where)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("place", [4, 25, 30])
def test_a_wrong_checksum(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough, place: int
) -> None:
    chunks = offsets_of_chunks(file)
    damage(file, chunks[3] + place)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end) == (12, 16)
    assert bad.where == f"{file}, byte {chunks[3]}"
    assert "checksum" in bad.reason
    assert good == RECORDS[:12] + RECORDS[16:]


def test_the_error_is_for_people(file: Path, damage: Callable[..., Path]) -> None:
    damage(file, 25)
    with pytest.raises(BadRecords) as error:
        list(open_reader(str(file)).read(0, 40))
    assert isinstance(error.value, UserError)
    assert f"samples [0, 4) at {file}, byte 0" in str(error.value)
    assert "--max_bad_records" in error.value.hint


def test_shard_reports_only_its_own_bad_samples(file: Path, damage: Callable[..., Path]) -> None:
    damage(file, offsets_of_chunks(file)[1] + 25)
    reader = open_reader(str(file))
    with pytest.raises(BadRecords) as error:
        list(reader.read(2, 6))
    assert (error.value.bad.start, error.value.bad.end) == (4, 6)
    with pytest.raises(BadRecords) as error:
        list(reader.read(6, 12))
    assert (error.value.bad.start, error.value.bad.end) == (6, 8)
    assert list(reader.read(8, 12)) == RECORDS[8:12]


def test_a_wrong_number_of_records(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough
) -> None:
    damage(file, offsets_of_chunks(file)[2] + 16, flip=1)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end) == (8, 13)
    assert good == RECORDS[:8] + RECORDS[12:]


def test_an_impossible_number_of_records(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough
) -> None:
    damage(file, offsets_of_chunks(file)[2] + 19)
    good, (bad,) = read_through(file)
    assert bad.end - bad.start == 1
    assert "number of lost samples is unknown" in bad.reason
    assert good == RECORDS[:8] + RECORDS[12:]


@pytest.mark.parametrize("flip", [1, 2, 4])
def test_a_wrong_compressor(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough, flip: int
) -> None:
    chunks = offsets_of_chunks(file)
    damage(file, chunks[5] + 8, flip=flip)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end, offset_in(bad.where)) == (20, 24, chunks[5])
    assert good == RECORDS[:20] + RECORDS[24:]


@pytest.mark.parametrize("byte", [0, 1, 3])
def test_a_wrong_size(file: Path, damage: Callable[..., Path], read_through: ReadThrough, byte: int) -> None:
    chunks = offsets_of_chunks(file)
    damage(file, chunks[5] + 12 + byte, flip=0x10)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end, offset_in(bad.where)) == (20, 24, chunks[5])
    assert good == RECORDS[:20] + RECORDS[24:]


@pytest.mark.parametrize("chunk", [0, 5, 9])
def test_a_wrong_magic(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough, chunk: int
) -> None:
    chunks = offsets_of_chunks(file)
    damage(file, chunks[chunk])
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end, offset_in(bad.where)) == (4 * chunk, 4 * chunk + 4, chunks[chunk])
    assert good == RECORDS[: 4 * chunk] + RECORDS[4 * chunk + 4 :]


def test_a_header_that_is_gone(file: Path, read_through: ReadThrough) -> None:
    chunks = offsets_of_chunks(file)
    content = bytearray(file.read_bytes())
    content[chunks[4] : chunks[4] + 20] = bytes(20)
    file.write_bytes(content)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end, offset_in(bad.where)) == (16, 17, chunks[4])
    assert "counted as one" in bad.reason
    assert good == RECORDS[:16] + RECORDS[20:]


def test_recordio_file_truncated_anywhere_reports_lost_samples(file: Path, read_through: ReadThrough) -> None:
    chunks = offsets_of_chunks(file)
    content = file.read_bytes()
    for cut in range(chunks[8] + 1, len(content)):
        file.write_bytes(content[:cut])
        good, bad = read_through(file)
        whole = sum(chunk <= cut for chunk in chunks[1:])
        assert good == RECORDS[: 4 * whole]
        if cut in chunks:
            assert bad == []
            continue
        assert [(found.start, offset_in(found.where)) for found in bad] == [(4 * whole, chunks[whole])]
        assert "the file ends" in bad[0].reason
        in_header = cut - chunks[whole] < 20
        assert bad[0].end - bad[0].start == (1 if in_header else 4)


def test_another_kind_of_file(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "x.recordio"
    path.write_bytes(b"nothing of the kind" * 100)
    assert "is not a RecordIO file" in refused(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_damage(
    fresh: Callable[[str], Path],
    write_recordio: Callable[..., Path],
    damage: Callable[..., Path],
    read_through: ReadThrough,
    data: st.DataObject,
) -> None:
    compressor = data.draw(st.sampled_from(["none", "snappy", "gzip"]))
    path = write_recordio(fresh("x.recordio"), RECORDS, max_chunk_records=7, compressor=compressor)
    chunks = offsets_of_chunks(path)
    changes = data.draw(
        st.lists(
            st.tuples(st.integers(0, path.stat().st_size - 1), st.integers(1, 255)),
            min_size=1,
            max_size=3,
            unique_by=lambda change: change[0],
        )
    )
    for offset, flip in changes:
        damage(path, offset, flip)
    hit = sorted({max(chunk for chunk in chunks if chunk <= offset) for offset, _ in changes})
    whole = [record for number, record in enumerate(RECORDS) if chunks[number // 7] not in hit]
    whole_file = len(hit) == len(chunks)
    try:
        good, bad = read_through(path)
    except UserError:
        # So much is gone that nothing tells the file from one of another kind.
        assert whole_file
        return
    assert good == whole
    assert {offset_in(found.where) for found in bad} <= set(hit)
    assert bad
