"""Rows that cannot be used are named by file and offset, and the others are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader
from tests.data.conftest import ReadThrough


def test_a_row_with_another_number_of_columns(tmp_path: Path, read_through: ReadThrough) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n5\n6,7\n8,9,10\n")
    good, bad = read_through(path)
    assert good == [["1", "2"], ["3", "4"], ["6", "7"]]
    assert [(found.start, found.end, found.where) for found in bad] == [
        (2, 3, f"{path}, byte 8"),
        (4, 5, f"{path}, byte 14"),
    ]
    assert bad[0].reason == "the row has 1 columns, not 2"


def test_rows_may_differ_if_the_user_says_so(tmp_path: Path, read_through: ReadThrough) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n5\n")
    assert read_through(path, {"ragged": "true"}) == ([["1", "2"], ["3", "4"], ["5"]], [])


@pytest.mark.parametrize("byte", [b"\xff", b"\x00"])
def test_bytes_that_are_no_text(tmp_path: Path, read_through: ReadThrough, byte: bytes) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"1,a\n2,b" + byte + b"\n3,c\n")
    good, (bad,) = read_through(path)
    assert good == [["1", "a"], ["3", "c"]]
    assert (bad.start, bad.end, bad.where) == (1, 2, f"{path}, byte 4")
    assert "not text" in bad.reason


def test_a_quote_that_is_never_closed(tmp_path: Path, read_through: ReadThrough) -> None:
    path = tmp_path / "x.csv"
    path.write_text('1,a\n2,"b\n3,c\n4,d\n')
    good, (bad,) = read_through(path)
    assert good == [["1", "a"]]
    assert (bad.start, bad.end, bad.where) == (1, 2, f"{path}, byte 4")
    assert "never closed" in bad.reason


def test_the_offset_counts_blank_lines_and_line_breaks_in_quotes(
    tmp_path: Path, read_through: ReadThrough
) -> None:
    path = tmp_path / "x.csv"
    start = b'1,"a\nb"\n\n\n2,c\n'
    path.write_bytes(start + b"3\n")
    _, (bad,) = read_through(path)
    assert bad.where == f"{path}, byte {len(start)}"


def test_a_bad_row_far_inside(tmp_path: Path, read_through: ReadThrough) -> None:
    path = tmp_path / "x.csv"
    with path.open("w") as file:
        for number in range(100_000):
            file.write(f"{number}\n" if number == 70_007 else f"{number},{'x' * 20}\n")
    good, (bad,) = read_through(path)
    assert len(good) == 99_999
    assert (bad.start, bad.end) == (70_007, 70_008)
    offset = int(bad.where.rsplit(" ", 1)[1])
    assert path.read_bytes()[offset : offset + 6] == b"70007\n"


def test_a_shard_without_the_bad_row_does_not_see_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n5\n6,7\n")
    reader = open_reader(str(path))
    assert list(reader.read(0, 2)) == [["1", "2"], ["3", "4"]]
    assert list(reader.read(3, 4)) == [["6", "7"]]
