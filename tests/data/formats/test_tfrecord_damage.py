"""Damaged TFRecord files: every record is the one that was written or is named as bad."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.formats.tfrecord_frames import frame
from elasticdl.errors import UserError
from tests.data.conftest import ReadThrough

RECORDS = [b"record %03d " % number * (number % 4) for number in range(30)]
OFFSETS = [sum(len(frame(record)) for record in RECORDS[:number]) for number in range(31)]


@pytest.fixture
def file(tmp_path: Path, write_tfrecord: Callable[[Path, Iterable[bytes]], Path]) -> Path:
    return write_tfrecord(tmp_path / "x.tfrecord", RECORDS)


def offset_in(where: str) -> int:
    found = re.search(r"byte (\d+)", where)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(("place", "word"), [(0, "length"), (7, "length"), (9, "length"), (14, "checksum")])
def test_a_damaged_record(
    file: Path, damage: Callable[..., Path], read_through: ReadThrough, place: int, word: str
) -> None:
    damage(file, OFFSETS[7] + place)
    good, (bad,) = read_through(file)
    assert (bad.start, bad.end) == (7, 8)
    assert bad.where == f"{file}, byte {OFFSETS[7]}"
    assert word in bad.reason
    assert good == RECORDS[:7] + RECORDS[8:]


def test_tfrecord_file_truncated_anywhere_reports_lost_samples(file: Path, read_through: ReadThrough) -> None:
    content = file.read_bytes()
    for cut in range(OFFSETS[27] + 1, len(content)):
        file.write_bytes(content[:cut])
        good, bad = read_through(file)
        whole = sum(offset <= cut for offset in OFFSETS[1:])
        assert good == RECORDS[:whole]
        if cut in OFFSETS:
            assert bad == []
        else:
            assert [(found.start, found.end) for found in bad] == [(whole, whole + 1)]
            assert "the file ends" in bad[0].reason
            assert offset_in(bad[0].where) == OFFSETS[whole]


def test_another_kind_of_file(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"nothing of the kind" * 100)
    assert "is not a TFRecord file" in refused(path)


def test_a_long_hole(file: Path, read_through: ReadThrough) -> None:
    content = bytearray(file.read_bytes())
    content[OFFSETS[3] : OFFSETS[9] + 5] = bytes(OFFSETS[9] + 5 - OFFSETS[3])
    file.write_bytes(content)
    good, (bad,) = read_through(file)
    assert offset_in(bad.where) == OFFSETS[3]
    assert good == RECORDS[:3] + RECORDS[10:]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_damage(
    fresh: Callable[[str], Path],
    write_tfrecord: Callable[[Path, Iterable[bytes]], Path],
    damage: Callable[..., Path],
    read_through: ReadThrough,
    data: st.DataObject,
) -> None:
    path = write_tfrecord(fresh("x.tfrecord"), RECORDS)
    places = data.draw(
        st.lists(
            st.tuples(st.integers(0, OFFSETS[30] - 1), st.integers(1, 255)),
            min_size=1,
            max_size=3,
            unique_by=lambda change: change[0],
        )
    )
    for offset, flip in places:
        damage(path, offset, flip)
    hit = {max(number for number in range(30) if OFFSETS[number] <= offset) for offset, _ in places}
    whole_file = len(hit) == 30
    try:
        good, bad = read_through(path)
    except UserError:
        # So much is gone that nothing tells the file from one of another kind.
        assert whole_file
        return
    assert good == [record for number, record in enumerate(RECORDS) if number not in hit]
    assert {offset_in(found.where) for found in bad} <= {OFFSETS[number] for number in hit}
    assert bad
