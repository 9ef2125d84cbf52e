"""The click models of the zoo in PyTorch learn from made clicks what there is to learn, and can be exported."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

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


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("clicks"))


def seeded(name: str) -> Trainer:
    torch.manual_seed(0)
    return trainer_of(name)


@pytest.mark.parametrize(
    # Chance is 0.5. What is reached here is between 0.03 and 0.05 more.
    ("name", "goal"),
    [("torch_deepfm", 0.70), ("torch_wide_deep", 0.66), ("torch_dcn", 0.62), ("torch_xdeepfm", 0.66)],
)
def test_learns(name: str, goal: float, clicks: Path, tmp_path: Path) -> None:
    trainer = seeded(name)
    example = assert_learns(trainer, clicks, goal)
    lines = trainer.export(tmp_path / "model", example)
    assert not any(line.startswith("no ") for line in lines), lines
    program = torch.export.load(str(tmp_path / "model" / "model.pt2")).module()
    np.testing.assert_allclose(
        program(**example.features).detach(), trainer.predict(example)["output"], rtol=1e-4, atol=1e-5
    )


def test_rows_with_commas_below_a_header_and_rows_without_a_label(clicks: Path, tmp_path: Path) -> None:
    trainer = seeded("torch_deepfm")
    text = (clicks / "test" / "criteo-00000.txt").read_text().splitlines()[:8]
    names = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    (tmp_path / "sample.csv").write_text(
        "\n".join([",".join(names), *(line.replace("\t", ",") for line in text)])
    )
    (tmp_path / "without.csv").write_text(
        "\n".join(line.partition("\t")[2].replace("\t", ",") for line in text)
    )
    batches = []
    for origin, mode in (
        (clicks / "test", Mode.TRAINING),
        (tmp_path / "sample.csv", Mode.TRAINING),
        (tmp_path / "without.csv", Mode.PREDICTION),
    ):
        batches.append(first_rows(trainer, origin, mode))
    for other in batches[1:]:
        for key in ("numbers", "ids"):
            assert torch.equal(batches[0].features[key], other.features[key])


@pytest.mark.parametrize("name", ["torch_deepfm", "torch_wide_deep", "torch_dcn", "torch_xdeepfm"])
def test_learns_from_rows_in_the_form_of_the_logs(name: str, tmp_path: Path) -> None:
    assert_learns_from_logs(seeded(name), tmp_path)


def test_rows_are_the_same_in_every_format(tmp_path: Path) -> None:
    assert_the_same_from_every_format(seeded("torch_deepfm"), tmp_path)
