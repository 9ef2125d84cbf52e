"""Image folders: the bytes of each file, with the number of the folder it lies in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader
from tests.data.conftest import ReadThrough

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff\xe0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {
        "dog/2.jpg": JPEG + b"2",
        "cat/1.png": PNG + b"1",
        "cat/deep/0.PNG": PNG + b"0",
        "dog/.hidden.jpg": JPEG,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


def test_classes_are_folders(folder: Path) -> None:
    reader = open_reader(str(folder))
    assert reader.kind == "columns"
    assert reader.metadata.class_names == ("cat", "dog")
    assert list(reader.read(0, len(reader))) == [
        {"image": PNG + b"1", "label": 0, "path": str(folder / "cat/1.png")},
        {"image": PNG + b"0", "label": 0, "path": str(folder / "cat/deep/0.PNG")},
        {"image": JPEG + b"2", "label": 1, "path": str(folder / "dog/2.jpg")},
    ]


def test_a_flat_folder_has_no_classes(folder: Path) -> None:
    reader = open_reader(str(folder / "dog"))
    assert reader.metadata.class_names == ()
    assert [record["label"] for record in reader.read(0, 1)] == [-1]


def test_one_file_and_a_pattern(folder: Path) -> None:
    assert [record["label"] for record in open_reader(str(folder / "cat/1.png")).read(0, 1)] == [-1]
    reader = open_reader(str(folder / "*" / "*.jpg"))
    assert [(record["label"], record["path"]) for record in reader.read(0, 1)] == [
        (0, str(folder / "dog/2.jpg"))
    ]
    assert reader.metadata.class_names == ("dog",)


def test_the_numbers_of_classes_can_be_given(folder: Path, refused: Callable[..., str]) -> None:
    reader = open_reader(str(folder), {"classes": "[bird,dog,cat]"})
    assert reader.metadata.class_names == ("bird", "dog", "cat")
    assert [record["label"] for record in reader.read(0, 3)] == [2, 2, 1]
    message = refused(folder, {"classes": "[dogs,cat]"})
    assert "dog" in message
    assert "Did you mean dogs?" in message


def test_an_image_beside_the_classes(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "stray.png").write_bytes(PNG)
    assert "stray.png" in refused(folder)


def test_other_files_count_only_if_the_format_is_not_given(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "labels.csv").write_text("a,1\n")
    assert "several formats" in refused(folder)
    assert len(open_reader(str(folder), {"format": "images"})) == 3


def test_files_that_are_no_images(folder: Path, read_through: ReadThrough) -> None:
    (folder / "cat/2.png").write_bytes(b"")
    (folder / "cat/3.png").write_bytes(b"<html>")
    good, bad = read_through(folder)
    assert len(good) == 3
    assert [(found.start, found.where, found.reason) for found in bad] == [
        (1, f"{folder}/cat/2.png, byte 0", "the file is empty"),
        (2, f"{folder}/cat/3.png, byte 0", "the file is not an image"),
    ]
