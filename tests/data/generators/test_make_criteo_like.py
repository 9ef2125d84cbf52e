"""Made-up clicks: the format of Criteo, the same rows in every format, and something in them to learn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.example import decode_example
from elasticdl.data.generators import criteo
from elasticdl.data.generators.criteo import CATEGORIES, NUMBERS, blocks, make_criteo_like
from elasticdl.errors import UserError


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_BLOCK_ROWS", 512)


def rows(folder: Path) -> list[Any]:
    reader = open_reader(str(folder), {"format": "csv", "sep": "tab", "header": "false"})
    return list(reader.read(0, len(reader)))


@pytest.mark.usefixtures("small_blocks")
def test_criteo_like_text_has_label_numbers_and_categories(tmp_path: Path) -> None:
    make_criteo_like(tmp_path / "c", rows=1300, test_rows=40, records_per_file=700)
    files = sorted((tmp_path / "c" / "train").iterdir())
    assert [path.name for path in files] == ["criteo-00000.txt", "criteo-00001.txt"]
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(lines) == 1300
    assert len(files[0].read_text().splitlines()) == 700
    for line in lines:
        label, *cells = line.split("\t")
        assert label in "01"
        assert len(cells) == 39
        assert all(cell == "" or int(cell) >= 0 for cell in cells[:13])
        assert all(cell == "" or (len(cell) == 8 and int(cell, 16) >= 0) for cell in cells[13:])
    assert len(rows(tmp_path / "c" / "test")) == 40


@pytest.mark.usefixtures("small_blocks")
def test_the_same_rows_in_every_format(tmp_path: Path) -> None:
    for name in criteo.FORMATS:
        make_criteo_like(tmp_path / name, rows=600, format=name, records_per_file=250, seed=3)
    text = rows(tmp_path / "text" / "train")
    names = ("label", *NUMBERS, *CATEGORIES)

    def as_text(record: dict[str, Any]) -> list[str]:
        return ["" if record[name] is None else str(record[name]) for name in names]

    def from_example(record: bytes) -> list[str]:
        features: dict[str, Any] = decode_example(record)
        assert features["label"].dtype == np.int64
        values: dict[str, Any] = {name: value[0] if len(value) else None for name, value in features.items()}
        for name in NUMBERS:
            values[name] = None if values[name] is None else int(values[name])
        for name in CATEGORIES:
            values[name] = None if values[name] is None else values[name].decode()
        return as_text(values)

    for name in ("recordio", "tfrecord"):
        reader = open_reader(str(tmp_path / name / "train"))
        assert [from_example(record) for record in reader.read(0, 600)] == text
    reader = open_reader(str(tmp_path / "parquet" / "train"))
    assert reader.metadata.column_dtypes[:2] == ("int64", "float32")
    found = [
        as_text({name: int(value) if isinstance(value, float) else value for name, value in record.items()})
        for record in reader.read(0, 600)
    ]
    assert found == text


@pytest.mark.usefixtures("small_blocks")
def test_rows_depend_on_the_seed_and_not_on_files_or_number() -> None:
    first = [row for table in blocks(1000, 1, 0) for row in table.to_pylist()]
    longer = [row for table in blocks(1500, 1, 0) for row in table.to_pylist()]
    assert longer[:1000] == first
    assert next(blocks(10, 2, 0)).to_pylist() != first[:10]
    assert next(blocks(10, 1, 1)).to_pylist() != first[:10]


def test_ids_follow_zipfs_law() -> None:
    (table,) = blocks(30_000, 0, 0)
    counts = Counter(table.column("C3").to_pylist())
    counts.pop(None)
    frequencies = sorted(counts.values(), reverse=True)
    # A few ids are everywhere, and most are seen once.
    assert sum(frequencies[:10]) > 0.1 * 30_000
    assert sum(frequency == 1 for frequency in frequencies) > len(frequencies) / 2
    assert len(frequencies) > 5000


def test_there_is_something_to_learn() -> None:
    train, test = next(blocks(30_000, 0, 0)), next(blocks(10_000, 0, 1))
    label = np.array(train.column("label"))
    assert 0.1 < label.mean() < 0.4
    # Naive Bayes on the categories, from the training rows alone.
    score = np.zeros(len(test))
    for name in CATEGORIES:
        clicks, shown = Counter[str | None](), Counter[str | None]()
        for value, clicked in zip(train.column(name).to_pylist(), label.tolist(), strict=True):
            shown[value] += 1
            clicks[value] += clicked
        base = label.mean()
        rates = {value: (clicks[value] + 20 * base) / (shown[value] + 20) for value in shown}
        known = np.array([rates.get(value, base) for value in test.column(name).to_pylist()])
        score += np.log(known / (1 - known))
    truth = np.array(test.column("label"))
    ranks = score.argsort().argsort()
    positives = truth.sum()
    auc = (ranks[truth == 1].sum() - positives * (positives - 1) / 2) / (positives * (len(truth) - positives))
    assert auc > 0.65


def test_a_format_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'parket'") as error:
        make_criteo_like(tmp_path / "c", rows=10, format="parket")
    assert "Did you mean parquet?" in error.value.hint
