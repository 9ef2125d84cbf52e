"""What is in a data set, in words and numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.description import describe
from elasticdl.data.example import encode_example


@pytest.fixture
def examples(tmp_path: Path, write_recordio: Callable[..., Path]) -> Path:
    for name, count in (("1.recordio", 20), ("2.recordio", 5)):
        records = [
            encode_example({"image": np.ones(64, np.float32), "label": number}) for number in range(count)
        ]
        write_recordio(tmp_path / name, records, max_chunk_records=10)
    return tmp_path


def test_files_samples_and_bytes(examples: Path) -> None:
    found = describe(open_reader(str(examples)))
    assert (found.format, found.samples) == ("recordio", 25)
    assert [(file.path, file.samples) for file in found.files] == [
        (str(examples / "1.recordio"), 20),
        (str(examples / "2.recordio"), 5),
    ]
    assert found.bytes == sum((examples / name).stat().st_size for name in ("1.recordio", "2.recordio"))


def test_features_are_columns(examples: Path) -> None:
    found = describe(open_reader(str(examples)), records=1)
    assert [(column.name, column.dtype, column.values) for column in found.columns] == [
        ("image", "float32", "64"),
        ("label", "int64", "1"),
    ]
    assert found.first_records == ({"image": "[1, 1, 1, 1, 1, 1, … 64 in all]", "label": "0"},)


def test_columns_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name,age,size\nann,40,1.5\nbob,,2\n")
    found = describe(open_reader(str(tmp_path)))
    assert [(column.name, column.dtype) for column in found.columns] == [
        ("name", "str"),
        ("age", "int64"),
        ("size", "float64"),
    ]
    assert found.first_records[1] == {"name": "bob", "age": "", "size": "2"}


def test_classes_of_images(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    found = describe(open_reader(str(tmp_path)))
    assert found.class_names == ("cat", "dog")
    assert [(file.path, file.samples, file.bytes) for file in found.files] == [
        (str(tmp_path / "cat/1.png"), 1, 108),
        (str(tmp_path / "dog/1.png"), 1, 108),
    ]
    assert found.first_records[0]["image"] == "89 50 4e 47 0d 0a 1a 0a… 108 bytes"


def test_records_of_no_known_kind(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    write_recordio(tmp_path / "x.recordio", [b"\xff\xfe", b"just text, no example"])
    found = describe(open_reader(str(tmp_path)))
    assert found.columns == ()
    assert found.first_records[0] == {"record": "ff fe (2 bytes)"}
    assert found.first_records[1] == {"record": "just text, no example"}


def test_damage_is_listed_if_asked_for(examples: Path, damage: Callable[..., Path]) -> None:
    damage(examples / "1.recordio", 30)
    reader = open_reader(str(examples))
    assert describe(reader).bad == ()
    read: list[int] = []
    found = describe(reader, check=True, progress=read.append)
    assert found.checked
    assert [(bad.start, bad.end, bad.where) for bad in found.bad] == [
        (0, 10, f"{examples}/1.recordio, byte 0")
    ]
    assert sum(read) == 25


def test_description_converts_to_json(examples: Path) -> None:
    document = json.loads(json.dumps(describe(open_reader(str(examples))).as_json()))
    assert document["samples"] == 25
    assert document["columns"][0] == {"name": "image", "dtype": "float32", "values": "64"}
