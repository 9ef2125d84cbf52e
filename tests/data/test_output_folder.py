"""A folder of data is there complete or not at all, and existing data is not replaced by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.data.dataset_writer import new_folder
from elasticdl.errors import UserError


def fill(path: Path, content: str = "1,2\n", **settings: bool) -> None:
    with new_folder(path, **settings) as folder:
        (folder / "x.csv").write_text(content)


def fail_in(folder: Path) -> None:
    (folder / "x.csv").write_text("1,2\n")
    raise ZeroDivisionError


def test_folder_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    with new_folder(path) as folder:
        (folder / "x.csv").write_text("1,2\n")
        assert not path.exists()
    assert (path / "x.csv").read_text() == "1,2\n"
    assert [found.name for found in path.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("exists", [False, True])
def test_an_error_leaves_nothing(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "data"
    if exists:
        path.mkdir()
    with pytest.raises(ZeroDivisionError), new_folder(path) as folder:
        fail_in(folder)
    assert list(tmp_path.rglob("*")) == ([path] if exists else [])


def test_an_empty_folder_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    assert [found.name for found in tmp_path.iterdir()] == ["x.csv"]


def test_data_is_replaced_only_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "data"
    fill(path)
    (path / "old.csv").write_text("old")
    (path / ".old.csv.elasticdl-index").write_text("old")
    with pytest.raises(UserError, match="exists and is not empty") as error:
        fill(path, "3,4\n")
    assert "--overwrite" in error.value.hint
    fill(path, "3,4\n", overwrite=True)
    assert [found.name for found in path.iterdir()] == ["x.csv"]
    assert (path / "x.csv").read_text() == "3,4\n"


def test_an_error_keeps_the_old_data(tmp_path: Path) -> None:
    path = tmp_path / "data"
    fill(path)
    with pytest.raises(ZeroDivisionError), new_folder(path, overwrite=True):
        raise ZeroDivisionError
    assert [found.name for found in path.iterdir()] == ["x.csv"]


def test_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "thesis.pdf").write_text("years of work")
    with pytest.raises(UserError, match=r"thesis\.pdf, which is not data"):
        fill(path, overwrite=True)
    assert (path / "thesis.pdf").read_text() == "years of work"


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        fill(tmp_path / "data")
