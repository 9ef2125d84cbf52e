"""The data sets that come with scikit-learn, split and written for training."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from elasticdl.data.dataset import open_reader
from elasticdl.data.example import decode_example
from elasticdl.data.generators.bundled import make_digits, make_iris, make_iris_file
from elasticdl.errors import UserError


def records(folder: Path) -> list[Any]:
    reader = open_reader(str(folder))
    return list(reader.read(0, len(reader)))


def test_digits_are_complete_without_duplicates(tmp_path: Path) -> None:
    made = make_digits(tmp_path / "digits")
    assert made.samples == {"train": 1437, "test": 360}
    train, test = (records(tmp_path / "digits" / part) for part in ("train", "test"))
    assert (len(train), len(test)) == (1437, 360)
    decoded: list[dict[str, Any]] = [decode_example(record) for record in train + test]
    found = sorted((features["label"].tolist(), features["image"].tolist()) for features in decoded)
    digits = datasets.load_digits()
    expected = sorted(
        ([int(label)], (image / 16).astype(np.float32).reshape(-1).tolist())
        for label, image in zip(digits.target, digits.images, strict=True)
    )
    assert found == expected


def test_digits_are_float32_between_0_and_1(tmp_path: Path) -> None:
    make_digits(tmp_path / "digits")
    features: dict[str, Any] = decode_example(records(tmp_path / "digits" / "test")[0])
    assert features["image"].dtype == np.float32
    assert features["image"].shape == (64,)
    assert features["image"].max() == 1.0
    assert features["label"].dtype == np.int64


def test_a_seed_gives_the_split(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_digits(tmp_path / name, seed=seed)
    first, same, other = (records(tmp_path / name / "train") for name in "abc")
    assert first == same
    assert first != other


def test_records_per_file(tmp_path: Path) -> None:
    make_digits(tmp_path / "digits", records_per_file=500)
    files = sorted((tmp_path / "digits" / "train").iterdir())
    assert [path.name for path in files] == [f"digits-0000{number}.recordio" for number in range(3)]
    assert [len(open_reader(str(path))) for path in files] == [500, 500, 437]


def test_iris_is_like_the_well_known_file(tmp_path: Path) -> None:
    made = make_iris(tmp_path / "iris")
    assert made.samples == {"train": 120, "test": 30}
    with (tmp_path / "iris" / "train" / "iris-00000.csv").open() as file:
        rows = list(csv.reader(file))
    assert len(rows) == 120
    assert {row[4] for row in rows} == {"Iris-setosa", "Iris-versicolor", "Iris-virginica"}
    assert ["5.1", "3.5", "1.4", "0.2", "Iris-setosa"] in rows + records(tmp_path / "iris" / "test")
    reader = open_reader(str(tmp_path / "iris" / "train"))
    assert reader.metadata.column_names == ()
    assert list(reader.read(0, 120)) == rows


def test_iris_as_the_one_well_known_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "iris.data"
    assert make_iris_file(path) == 150
    lines = path.read_text().splitlines()
    assert lines[0] == "5.1,3.5,1.4,0.2,Iris-setosa"
    assert lines[149] == "5.9,3.0,5.1,1.8,Iris-virginica"
    assert len({line.rpartition(",")[2] for line in lines}) == 3
    with pytest.raises(UserError, match=r"iris\.data exists") as error:
        make_iris_file(path)
    assert error.value.hint == "Add --overwrite to replace it."
    path.write_text("something else")
    make_iris_file(path, overwrite=True)
    assert path.read_text().splitlines() == lines
    with pytest.raises(UserError, match="new exists"):
        make_iris_file(path.parent, overwrite=True)


def test_without_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for make in (make_digits, make_iris):
        with pytest.raises(UserError, match="scikit-learn") as error:
            make(tmp_path / "x")
        assert error.value.hint == "pip install 'scikit-learn>=1.3'"
    assert list(tmp_path.iterdir()) == []


def test_scikit_learn_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, elasticdl.data.generators.bundled as samples\n"
        "samples.make_digits(pathlib.Path(sys.argv[1]) / 'digits')\n"
        "samples.make_iris(pathlib.Path(sys.argv[1]) / 'iris')\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
