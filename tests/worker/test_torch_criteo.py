"""The click models of the zoo in PyTorch learn from made clicks what there is to learn, and can be exported."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from e2e import click_rows
from elasticdl.data.criteo import make_criteo_like
from elasticdl.data.open import open_reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.frameworks import make_trainer
from elasticdl.worker.models import OwnModel
from elasticdl.worker.trainer import Shard, Trainer

ZOO = Path(__file__).parents[2] / "model_zoo"
OPTIONS: dict[str, Any] = {"batch_size": 32, "max_bad_records": 0}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks") / "criteo"
    make_criteo_like(folder, rows=4000, test_rows=1000)
    return folder


def trainer_of(name: str) -> Trainer:
    torch.manual_seed(0)
    definition = load_definition(
        model_zoo=str(ZOO), model_def=f"criteo.{name}.custom_model", names={}, model_params={}
    )
    return make_trainer(definition)


@pytest.mark.parametrize(
    # Chance is 0.5. What is reached here is between 0.03 and 0.05 more.
    ("name", "goal"),
    [("torch_deepfm", 0.70), ("torch_wide_deep", 0.66), ("torch_dcn", 0.62), ("torch_xdeepfm", 0.66)],
)
def test_learns(name: str, goal: float, clicks: Path, tmp_path: Path) -> None:
    trainer = trainer_of(name)
    model = OwnModel(trainer, restore_from="", first_step=0)
    training, testing = open_reader(str(clicks / "train")), open_reader(str(clicks / "test"))
    example = None
    for epoch in range(2):
        shard = Shard(lease_id=1, epoch=epoch, start=0, end=len(training))
        for batch in trainer.batches(training, [shard], mode=Mode.TRAINING, **OPTIONS):
            assert not batch.atomic
            example = example or batch
            model.prepare(batch)
            model.train(batch, position=0, batches=1)
    shard = Shard(lease_id=2, epoch=0, start=0, end=len(testing))
    for batch in trainer.batches(testing, [shard], mode=Mode.EVALUATION, **OPTIONS):
        trainer.evaluate(batch)
    values = trainer.metric_values(trainer.take_metric_states())
    assert values["auc"] >= goal, values
    assert example is not None
    lines = trainer.export(tmp_path / "model", example)
    assert not any(line.startswith("no ") for line in lines), lines
    program = torch.export.load(str(tmp_path / "model" / "model.pt2")).module()
    np.testing.assert_allclose(
        program(**example.features).detach(), trainer.predict(example)["output"], rtol=1e-4, atol=1e-5
    )


def test_rows_with_commas_below_a_header_and_rows_without_a_label(clicks: Path, tmp_path: Path) -> None:
    trainer = trainer_of("torch_deepfm")
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
        shard = Shard(lease_id=1, epoch=0, start=0, end=8)
        (batch,) = trainer.batches(open_reader(str(origin)), [shard], mode=mode, **OPTIONS)
        batches.append(batch)
    for other in batches[1:]:
        for key in ("numbers", "ids"):
            assert torch.equal(batches[0].features[key], other.features[key])


@pytest.mark.parametrize("name", ["torch_deepfm", "torch_wide_deep", "torch_dcn", "torch_xdeepfm"])
def test_learns_from_rows_in_the_form_of_the_logs(name: str, tmp_path: Path) -> None:
    trainer = trainer_of(name)
    model = OwnModel(trainer, restore_from="", first_step=0)
    reader = open_reader(str(click_rows.provide(tmp_path)))
    losses = []
    for epoch in range(6):
        shard = Shard(lease_id=1, epoch=epoch, start=0, end=len(reader))
        total = 0.0
        for batch in trainer.batches(reader, [shard], mode=Mode.TRAINING, **OPTIONS):
            model.prepare(batch)
            total += batch.size * model.train(batch, position=0, batches=1)
        losses.append(total / len(reader))
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0], losses
