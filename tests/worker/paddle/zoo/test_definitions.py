"""The definitions of the zoo in Paddle learn what there is to learn, and can be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle

from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.movielens import make_movielens_like
from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer
from tests.worker.clicks import (
    ZOO,
)

OPTIONS: dict[str, Any] = {"batch_size": 32, "max_bad_records": 0}


def trainer_of(name: str) -> Trainer:
    paddle.seed(0)
    definition = load_definition(
        model_zoo=str(ZOO), model_def=f"{name}.custom_model", names={}, model_params={}
    )
    return make_trainer(definition)


def whole(reader: Reader, epoch: int = 0) -> list[Shard]:
    return [Shard(lease_id=1, epoch=epoch, start=0, end=len(reader))]


def learn(trainer: Trainer, training: Reader, testing: Reader, epochs: int) -> tuple[Batch, dict[str, float]]:
    """Returns a batch and the metrics of what it has not seen."""
    model = LocalModel(trainer, restore_from="", first_step=0)
    example: Batch | None = None
    for epoch in range(epochs):
        for batch in trainer.batches(training, whole(training, epoch), mode=Mode.TRAINING, **OPTIONS):
            assert not batch.atomic
            example = example or batch
            model.prepare(batch)
            model.train(batch, position=0, batches=1)
    for batch in trainer.batches(testing, whole(testing), mode=Mode.EVALUATION, **OPTIONS):
        trainer.evaluate(batch)
    assert example is not None
    return example, trainer.metric_values(trainer.take_metric_states())


def check_program(trainer: Trainer, example: Batch, folder: Path) -> None:
    lines = trainer.export(folder, example)
    assert not any(line.startswith("no ") for line in lines), lines
    program = paddle.jit.load(str(folder / "model"))
    program.eval()
    features = example.features if isinstance(example.features, dict) else {"": example.features}
    outputs = program(*map(paddle.to_tensor, features.values()))
    np.testing.assert_allclose(outputs.numpy(), trainer.predict(example)["output"], rtol=1e-4, atol=1e-5)


def test_recommendation_beats_mean_and_is_exported(tmp_path: Path) -> None:
    make_movielens_like(tmp_path / "ratings", rows=6000, test_rows=600, users=300, movies=200)
    training, testing = (open_reader(str(tmp_path / "ratings" / part)) for part in ("train", "test"))
    trainer = trainer_of("recommendation.paddle_recommendation")
    example, values = learn(trainer, training, testing, 4)
    stars = np.array([float(row[-1]) for row in testing.read(0, len(testing))])
    # A model that knows nothing says the mean.
    assert values["rmse"] < 0.75 * stars.std()
    check_program(trainer, example, tmp_path / "model")
