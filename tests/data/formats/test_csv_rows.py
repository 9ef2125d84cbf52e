"""Rows come back as they were written, from any range, whatever stands inside quotes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader

cell = st.text(alphabet="ab1\", ;\n'\té€", max_size=6)


@settings(max_examples=120, deadline=None)
@given(
    rows=st.lists(st.tuples(cell, cell, cell), min_size=1, max_size=40),
    ends=st.sampled_from(["\n", "\r\n"]),
    last_end=st.booleans(),
    data=st.data(),
)
def test_any_range_of_any_rows(
    fresh: Callable[[str], Path],
    rows: list[tuple[str, str, str]],
    ends: str,
    last_end: bool,
    data: st.DataObject,
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ends).writerows(rows)
    content = text.getvalue()
    path = fresh("x.csv")
    path.write_bytes((content if last_end else content.removesuffix(ends)).encode())
    reader = open_reader(str(path), {"header": "false", "sep": "comma"})
    assert len(reader) == len(rows)
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    assert list(reader.read(start, end)) == [list(row) for row in rows[start:end]]


@pytest.mark.parametrize("quoted", [False, True])
def test_more_rows_than_fit_in_a_block(tmp_path: Path, quoted: bool) -> None:
    path = tmp_path / "x.csv"
    wrap = '"{}\n{}"' if quoted else "{}-{}"
    with path.open("w") as file:
        for number in range(60_000):
            file.write(f"{number},{wrap.format(number, 'x' * 30)}\n")
    assert path.stat().st_size > 2 << 20
    reader = open_reader(str(path))
    assert len(reader) == 60_000
    assert [int(row[0]) for row in reader.read(0, 60_000)] == list(range(60_000))
    for start in (1, 255, 256, 257, 30_001, 59_999):
        assert [int(row[0]) for row in reader.read(start, min(start + 300, 60_000))] == list(
            range(start, min(start + 300, 60_000))
        )


def test_quotes_in_some_blocks_only(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("w") as file:
        for number in range(80_000):
            file.write(f'{number},"a\n{number}"\n' if 30_000 < number < 30_010 else f"{number},{'y' * 30}\n")
    reader = open_reader(str(path))
    assert len(reader) == 80_000
    assert [row[0] for row in reader.read(29_999, 30_020)] == [str(n) for n in range(29_999, 30_020)]
    assert list(reader.read(30_005, 30_006)) == [["30005", "a\n30005"]]
    assert list(reader.read(79_999, 80_000)) == [["79999", "y" * 30]]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\n1,2\n\n\r\n3,4\n\n")
    assert list(open_reader(str(path)).read(0, 2)) == [["1", "2"], ["3", "4"]]


def test_a_quote_inside_a_cell_is_a_character(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('1,5" disk\n2,plain\n3,a "b" c\n')
    assert list(open_reader(str(path)).read(0, 3)) == [["1", '5" disk'], ["2", "plain"], ["3", 'a "b" c']]


def test_rows_larger_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = [[str(number), "z" * 2_500_000] for number in range(3)] + [["3", 'q"\n' * 900_000]]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    reader = open_reader(str(path), {"header": "false"})
    assert list(reader.read(0, 4)) == rows
    assert list(reader.read(2, 3)) == [rows[2]]


def test_the_rows_of_iris(tmp_path: Path) -> None:
    # As published: no header, and no line end after the last row, or two of them.
    for ending in ("", "\n", "\n\n"):
        path = tmp_path / "iris.data"
        path.write_text(f"5.1,3.5,1.4,0.2,Iris-setosa\n5.9,3.0,5.1,1.8,Iris-virginica{ending}")
        reader = open_reader(str(path))
        assert list(reader.read(0, len(reader))) == [
            ["5.1", "3.5", "1.4", "0.2", "Iris-setosa"],
            ["5.9", "3.0", "5.1", "1.8", "Iris-virginica"],
        ]
        assert reader.metadata.column_names == ()
