"""The DeepFM estimator's columns to learn from: all, or those that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_zoo.deepctr.deepfm_estimator import CATEGORIES, NUMBERS, parse


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    return [f"--training_data={tmp_path}", f"--validation_data={tmp_path}"]


def test_all_features_are_numbers_and_categories(data: list[str]) -> None:
    assert parse(data).features == [*NUMBERS, *CATEGORIES]


def test_named_features_are_selected(data: list[str]) -> None:
    assert parse([*data, "--features=I13,C1"]).features == ["I13", "C1"]


def test_one_that_there_is_not(data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([*data, "--features=I1,C27"])
    assert "--features: there is no C27; they are I1 to I13 and C1 to C26" in capsys.readouterr().err
