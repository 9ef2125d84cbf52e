"""One file, a folder, a pattern: which files belong to a data set, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/2.csv", "a.csv", "b/1.csv", "c.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name},1\n")
    return tmp_path


def names(path: Path | str, params: dict[str, str] | None = None) -> list[str]:
    reader = open_reader(str(path), params)
    return [row[0] for row in reader.read(0, len(reader))]


def test_one_file(folder: Path) -> None:
    assert names(folder / "b" / "2.csv") == ["b/2.csv"]


def test_a_folder_with_all_below_it_sorted(folder: Path) -> None:
    assert names(folder) == ["a.csv", "b/1.csv", "b/2.csv", "c.csv"]


def test_pattern_selects_files_in_order(folder: Path) -> None:
    assert names(folder / "*.csv") == ["a.csv", "c.csv"]
    assert names(folder / "**" / "*.csv") == ["a.csv", "b/1.csv", "b/2.csv", "c.csv"]
    assert names(folder / "b*") == ["b/1.csv", "b/2.csv"]
    assert names(folder / "[ab]*") == ["a.csv", "b/1.csv", "b/2.csv"]


def test_a_file_whose_name_looks_like_a_pattern(folder: Path) -> None:
    (folder / "x[1].csv").write_text("brackets,1\n")
    assert names(folder / "x[1].csv") == ["brackets"]


def test_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert names("~/a.csv") == ["a.csv"]


def test_files_without_data_are_ignored(folder: Path) -> None:
    for name in (".hidden.csv", "_SUCCESS", "README", "readme.txt", "LICENSE", "notes.md", ".git/x.csv"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("no,data,at,all\n")
    assert names(folder) == ["a.csv", "b/1.csv", "b/2.csv", "c.csv"]


def test_links_to_folders_are_followed_once(folder: Path) -> None:
    (folder / "b" / "up").symlink_to(folder)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "z.csv").write_text("z,1\n")
    (folder / "b" / "across").symlink_to(folder / "elsewhere")
    assert sorted(names(folder)) == ["a.csv", "b/1.csv", "b/2.csv", "c.csv", "z"]


def test_empty_files_add_nothing(folder: Path) -> None:
    (folder / "0.csv").write_text("")
    (folder / "empty-without-suffix").write_text("")
    assert names(folder / "*.csv") == ["a.csv", "c.csv"]


def test_the_format_by_content(
    tmp_path: Path,
    write_recordio: Callable[..., Path],
    write_tfrecord: Callable[[Path, Iterable[bytes]], Path],
) -> None:
    write_recordio(tmp_path / "data-00000", [b"x"])
    assert list(open_reader(str(tmp_path / "data-00000")).read(0, 1)) == [b"x"]
    write_tfrecord(tmp_path / "events", [b"y"])
    assert list(open_reader(str(tmp_path / "events")).read(0, 1)) == [b"y"]
    (tmp_path / "table.data").write_text("1,é\n")
    assert list(open_reader(str(tmp_path / "table.data")).read(0, 1)) == [["1", "é"]]


def test_the_format_can_be_given(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    write_recordio(tmp_path / "misnamed.csv", [b"x"])
    assert list(open_reader(str(tmp_path), {"format": "RecordIO"}).read(0, 1)) == [b"x"]
