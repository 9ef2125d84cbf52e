"""Separators, headers and encodings are detected from the first rows, or given by parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.errors import UserError


def rows_of(path: Path, params: dict[str, str] | None = None) -> list[Any]:
    reader = open_reader(str(path), params)
    return list(reader.read(0, len(reader)))


def write(tmp_path: Path, content: str, name: str = "x.csv", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode(encoding))
    return path


@pytest.mark.parametrize("sep", [",", "\t", ";", "|", "\x01"])
def test_separator_is_detected_from_the_rows(tmp_path: Path, sep: str) -> None:
    path = write(tmp_path, f"1{sep}a b{sep}2\n3{sep}c{sep}4\n", name="x.txt")
    assert rows_of(path) == [["1", "a b", "2"], ["3", "c", "4"]]


@pytest.mark.parametrize(
    ("given", "sep"),
    [
        (";", ";"),
        ("semicolon", ";"),
        ("tab", "\t"),
        ("\\t", "\t"),
        ("space", " "),
        ("ctrl-a", "\x01"),
        (":", ":"),
    ],
)
def test_the_separator_can_be_given(tmp_path: Path, given: str, sep: str) -> None:
    path = write(tmp_path, f"1,0{sep}2\n3,0{sep}4\n")
    assert rows_of(path, {"sep": given}) == [["1,0", "2"], ["3,0", "4"]]


def test_a_damaged_row_does_not_change_the_separator(tmp_path: Path) -> None:
    path = write(tmp_path, "1;2;3\n" * 20 + "4;5\n" + "1;2;3\n" * 20)
    assert next(open_reader(str(path)).read(0, 1)) == ["1", "2", "3"]


def test_csv_with_one_column_has_one_field_per_row(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "1\n2\n")) == [["1"], ["2"]]


def test_a_header_is_recognized(tmp_path: Path) -> None:
    reader = open_reader(str(write(tmp_path, "name,age\nann,40\nbob,50\n")))
    assert reader.metadata.column_names == ("name", "age")
    assert reader.metadata.column_dtypes == ("str", "str")
    assert list(reader.read(0, 2)) == [["ann", "40"], ["bob", "50"]]


@pytest.mark.parametrize("first", ["ann,4", "ann,", "x,x"])
def test_no_header_where_the_first_row_is_like_data(tmp_path: Path, first: str) -> None:
    reader = open_reader(str(write(tmp_path, f"{first}\nbob,50\n")))
    assert len(reader) == 2
    assert reader.metadata.column_names == ()


def test_a_header_can_be_said_to_be_there_or_not(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\nc,d\n")
    assert rows_of(path) == [["a", "b"], ["c", "d"]]
    assert rows_of(path, {"header": "true"}) == [["c", "d"]]
    numbers = write(tmp_path, "x,y\n1,2\n", name="y.csv")
    assert rows_of(numbers, {"header": "false"}) == [["x", "y"], ["1", "2"]]


def test_header_with_line_break_is_one_name(tmp_path: Path) -> None:
    reader = open_reader(str(write(tmp_path, '"the\nname",age\nann,40\n')))
    assert reader.metadata.column_names == ("the\nname", "age")
    assert list(reader.read(0, 1)) == [["ann", "40"]]


def test_every_file_has_the_header(tmp_path: Path, refused: Callable[..., str]) -> None:
    write(tmp_path, "name,age\nann,40\n", name="1.csv")
    write(tmp_path, "name,age\nbob,50\ncec,60\n", name="2.csv")
    assert rows_of(tmp_path) == [["ann", "40"], ["bob", "50"], ["cec", "60"]]
    write(tmp_path, "name,size\ndan,50\n", name="3.csv")
    message = refused(tmp_path)
    assert "3.csv" in message
    assert "name, size" in message


def test_quotes_can_mean_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, '1\t"a\n2\tb"\n', name="x.tsv")
    assert rows_of(path, {"quote": "none"}) == [["1", '"a'], ["2", 'b"']]
    assert rows_of(write(tmp_path, "1,'a,b'\n"), {"quote": "'"}) == [["1", "a,b"]]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "gbk", "utf-8-sig"])
def test_given_encoding_is_used(tmp_path: Path, encoding: str) -> None:
    word = "北京" if encoding == "gbk" else "Zürich"
    path = write(tmp_path, f"1,{word}\n2,b\n", encoding=encoding)
    assert rows_of(path, {"encoding": encoding}) == [["1", word], ["2", "b"]]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    reader = open_reader(str(write(tmp_path, "name,age\nann,40\n", encoding="utf-8-sig")))
    assert reader.metadata.column_names == ("name", "age")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"sep": "comma,"}, "not a separator"),
        ({"header": "perhaps"}, "neither true nor false nor auto"),
        ({"quote": "''"}, "not a quote"),
        ({"encoding": "utf-16"}, "cannot be read"),
        ({"encoding": "klingon"}, "cannot be read"),
        ({"ragged": "2"}, "neither true nor false"),
    ],
)
def test_wrong_values_are_errors(
    tmp_path: Path, refused: Callable[..., str], params: dict[str, str], words: str
) -> None:
    assert words in refused(write(tmp_path, "1,2\n"), params)


def test_files_that_are_no_csv_of_any_kind(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "UTF-16" in refused(write(tmp_path, "1,2\n", encoding="utf-16"))
    assert "carriage returns" in refused(write(tmp_path, "1,2\r3,4\r"))


def test_header_of_one_column_alone_is_no_sample(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no samples"):
        rows_of(write(tmp_path, "sample\n"))
    assert rows_of(write(tmp_path, "sample\n"), {"header": "false"}) == [["sample"]]
    # A first file with nothing but its header does not make samples of the headers of the others.
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text("sample\n")
    (tmp_path / "files" / "b.csv").write_text("sample\n1\n2\n")
    assert rows_of(tmp_path / "files") == [["1"], ["2"]]


def test_header_alone_is_no_sample(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no samples"):
        open_reader(str(write(tmp_path, "name,age\n")))
    assert rows_of(write(tmp_path, "ann,40\n")) == [["ann", "40"]]
    assert rows_of(write(tmp_path, "name,age\n"), {"header": "false"}) == [["name", "age"]]
