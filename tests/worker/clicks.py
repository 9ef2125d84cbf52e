"""Learning from clicks, whatever the framework: what the tests of the zoo's click models have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from e2e import click_rows
from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.criteo import FORMATS, make_criteo_like
from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer

ZOO = Path(__file__).parents[2] / "model_zoo"
OPTIONS: dict[str, Any] = {"batch_size": 32, "max_bad_records": 0}


def make(folder: Path) -> Path:
    make_criteo_like(folder / "criteo", rows=4000, test_rows=1000)
    return folder / "criteo"


def trainer_of(name: str) -> Trainer:
    definition = load_definition(
        model_zoo=str(ZOO), model_def=f"criteo.{name}.custom_model", names={}, model_params={}
    )
    return make_trainer(definition)


def first_rows(trainer: Trainer, origin: Path, mode: Mode = Mode.TRAINING) -> Batch:
    """Eight of them, as a batch."""
    shard = Shard(lease_id=1, epoch=0, start=0, end=8)
    (batch,) = trainer.batches(open_reader(str(origin)), [shard], mode=mode, **OPTIONS)
    return batch


def assert_the_same_from_every_format(trainer: Trainer, folder: Path) -> None:
    """Whatever the format that clicks were made in."""
    made = {}
    for format_ in FORMATS:
        make_criteo_like(folder / format_, rows=8, test_rows=0, format=format_)
        made[format_] = first_rows(trainer, folder / format_ / "train")
        unlabelled = first_rows(trainer, folder / format_ / "train", Mode.PREDICTION)
        for batch in (made[format_], unlabelled):
            for key in ("numbers", "ids"):
                np.testing.assert_allclose(batch.features[key], made["text"].features[key], rtol=1e-6)
        np.testing.assert_array_equal(made[format_].labels, made["text"].labels)


def assert_learns(trainer: Trainer, clicks: Path, goal: float) -> Batch:
    """Two epochs, and the AUC of rows it has not seen. Returns a batch."""
    model = LocalModel(trainer, restore_from="", first_step=0)
    training, testing = open_reader(str(clicks / "train")), open_reader(str(clicks / "test"))
    seen: list[Batch] = []
    for epoch in range(2):
        _train(trainer, model, training, epoch, seen.append)
    assert not any(batch.atomic for batch in seen)
    shard = Shard(lease_id=2, epoch=0, start=0, end=len(testing))
    for batch in trainer.batches(testing, [shard], mode=Mode.EVALUATION, **OPTIONS):
        trainer.evaluate(batch)
    values = trainer.metric_values(trainer.take_metric_states())
    assert values["auc"] >= goal, values
    return seen[0]


def assert_learns_from_logs(trainer: Trainer, folder: Path) -> None:
    """From rows in the form of the logs, which it sees again and again."""
    model = LocalModel(trainer, restore_from="", first_step=0)
    reader = open_reader(str(click_rows.provide(folder)))
    losses = [_train(trainer, model, reader, epoch) for epoch in range(6)]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0], losses


def _train(
    trainer: Trainer,
    model: LocalModel,
    reader: Reader,
    epoch: int,
    see: Callable[[Batch], None] = lambda _: None,
) -> float:
    """One epoch. Returns its mean loss."""
    shard = Shard(lease_id=1, epoch=epoch, start=0, end=len(reader))
    total = 0.0
    for batch in trainer.batches(reader, [shard], mode=Mode.TRAINING, **OPTIONS):
        see(batch)
        model.prepare(batch)
        total += batch.size * model.train(batch, position=0, batches=1)
    return total / len(reader)
