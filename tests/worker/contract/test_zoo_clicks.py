"""The zoo's click models of every framework learn from generated clicks, in every format, and their exports agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticdl.jobs.mode import Mode
from elasticdl.worker.trainer import Trainer
from tests.worker.clicks import (
    assert_learns,
    assert_learns_from_logs,
    assert_the_same_from_every_format,
    first_rows,
    make,
    trainer_of,
)
from tests.worker.contract.framework import INSTALLED, load

# The AUC that a model reaches at least: chance is 0.5, and what is reached here is between 0.03 and 0.05 more.
GOALS = {
    "keras_deepfm": 0.69,
    "keras_wide_deep": 0.65,
    "keras_dcn": 0.62,
    "keras_xdeepfm": 0.65,
    "torch_deepfm": 0.70,
    "torch_wide_deep": 0.66,
    "torch_dcn": 0.62,
    "torch_xdeepfm": 0.66,
    "paddle_deepfm": 0.70,
}
MODELS = [name for name in GOALS if name.partition("_")[0] in INSTALLED]
DEEPFM = [name for name in MODELS if name.endswith("_deepfm")]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("clicks"))


def seeded(name: str) -> Trainer:
    load(name.partition("_")[0]).seed(0)
    return trainer_of(name)


@pytest.mark.parametrize("name", MODELS)
def test_click_model_learns_and_its_export_agrees(name: str, clicks: Path, tmp_path: Path) -> None:
    trainer = seeded(name)
    example = assert_learns(trainer, clicks, GOALS[name])
    lines = trainer.export(tmp_path / "model", example)
    assert not any(line.startswith("no ") for line in lines), lines
    found = load(name.partition("_")[0]).exported_outputs(tmp_path / "model", example.features)
    (expected,) = trainer.predict(example).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_click_model_learns_from_rows_of_logs(name: str, tmp_path: Path) -> None:
    assert_learns_from_logs(seeded(name), tmp_path)


@pytest.mark.parametrize("name", DEEPFM)
def test_rows_of_every_format_are_the_same(name: str, tmp_path: Path) -> None:
    assert_the_same_from_every_format(seeded(name), tmp_path)


@pytest.mark.parametrize("name", DEEPFM)
def test_rows_with_header_and_rows_without_label_are_the_same(
    name: str, clicks: Path, tmp_path: Path
) -> None:
    trainer = seeded(name)
    text = (clicks / "test" / "criteo-00000.txt").read_text().splitlines()[:8]
    names = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    (tmp_path / "sample.csv").write_text(
        "\n".join([",".join(names), *(line.replace("\t", ",") for line in text)])
    )
    (tmp_path / "without.csv").write_text(
        "\n".join(line.partition("\t")[2].replace("\t", ",") for line in text)
    )
    expected = first_rows(trainer, clicks / "test", Mode.TRAINING)
    for file, mode in (("sample.csv", Mode.TRAINING), ("without.csv", Mode.PREDICTION)):
        found = first_rows(trainer, tmp_path / file, mode)
        for key in ("numbers", "ids"):
            np.testing.assert_array_equal(found.features[key], expected.features[key])
