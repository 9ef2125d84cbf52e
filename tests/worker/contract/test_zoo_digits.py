"""The models of the zoo in every framework learn, are exported, and predict in the order of the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from elasticdl.data.dataset import open_reader
from elasticdl.data.example import encode_example
from elasticdl.data.generators.bundled import make_digits
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.trainer import Batch, Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer
from tests.worker.clicks import OPTIONS, ZOO
from tests.worker.contract.framework import INSTALLED, load

SPECIES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")


def digits() -> list[Any]:
    data = datasets.load_digits()
    return [
        encode_example({"image": (image / 16).astype(np.float32), "label": int(label)})
        for image, label in zip(data.images, data.target, strict=True)
    ]


def large_digits() -> list[Any]:
    """Of MNIST's form: the same digits with every pixel three wide and a margin around, up to 255."""
    data = datasets.load_digits()
    pad = np.pad(np.kron(data.images[:600] * 15, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
    return [
        encode_example({"image": image.astype(np.float32), "label": int(label)})
        for image, label in zip(pad, data.target[:600], strict=True)
    ]


def irises() -> list[Any]:
    data = datasets.load_iris()
    return [
        [*map(str, row), SPECIES[kind]]
        for row, kind in zip(data.data.tolist(), data.target.tolist(), strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Case:
    """`goals`: what metrics of a fifth of the records reach after these epochs."""

    framework: str
    definition: str
    records: Callable[[], list[Any]]
    epochs: int
    goals: dict[str, float]
    batch_size: int = 32


CASES = [
    Case(
        framework="keras",
        definition="digits.keras_cnn",
        records=digits,
        epochs=8,
        goals={"accuracy": 0.97},
    ),
    Case(
        framework="torch",
        definition="digits.torch_cnn",
        records=digits,
        epochs=5,
        goals={"accuracy": 0.95},
    ),
    Case(
        framework="paddle",
        definition="digits.paddle_cnn",
        records=digits,
        epochs=5,
        goals={"accuracy": 0.95},
    ),
    Case(
        framework="torch",
        definition="mnist_torch.mnist_torch",
        records=large_digits,
        epochs=6,
        goals={"accuracy": 0.9, "top_3": 0.95},
    ),
    Case(
        framework="keras",
        definition="iris.keras_dnn",
        records=irises,
        epochs=30,
        goals={"accuracy": 0.9},
        batch_size=16,
    ),
    Case(
        framework="torch",
        definition="iris.torch_dnn",
        records=irises,
        epochs=30,
        goals={"accuracy": 0.85, "f1": 0.85},
    ),
    Case(
        framework="keras",
        definition="two_towers.keras_two_towers",
        records=digits,
        epochs=6,
        goals={"digit_accuracy": 0.93, "even_auc": 0.95},
    ),
    Case(
        framework="torch",
        definition="two_towers.torch_two_towers",
        records=digits,
        epochs=6,
        goals={"digit_accuracy": 0.9, "even_auc": 0.95},
    ),
]


def trainer_of(definition: str, framework: str) -> Trainer:
    load(framework).seed(0)
    return make_trainer(
        load_definition(model_zoo=str(ZOO), model_def=f"{definition}.custom_model", names={}, model_params={})
    )


def shards(size: int, count: int, epoch: int = 0) -> list[Shard]:
    """All samples, in another order of shards in each epoch."""
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    found = [Shard(lease_id=i, epoch=epoch, start=edges[i], end=edges[i + 1]) for i in range(count)]
    return [found[i] for i in np.random.default_rng(epoch).permutation(count)]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.framework in INSTALLED], ids=lambda case: case.definition
)
def test_zoo_model_learns_and_is_exported(case: Case, memory_reader: Any, tmp_path: Path) -> None:
    records = case.records()
    np.random.default_rng(0).shuffle(records)
    border = len(records) * 4 // 5
    training, testing = (
        memory_reader(part, kind="row" if isinstance(part[0], list) else "bytes")
        for part in (records[:border], records[border:])
    )
    trainer = trainer_of(case.definition, case.framework)
    options = OPTIONS | {"batch_size": case.batch_size}
    runner = trainer.callbacks(leader=True, epochs=case.epochs)
    runner.fire("on_train_begin", {})
    example: Batch | None = None
    for epoch in range(case.epochs):
        runner.fire("on_epoch_begin", epoch, {})
        loss = 0.0
        for batch in trainer.batches(training, shards(border, 5, epoch), mode=Mode.TRAINING, **options):
            assert not batch.atomic
            example = example or batch
            loss = trainer.train(batch)
        runner.fire("on_epoch_end", epoch, {"loss": loss})
    for batch in trainer.batches(testing, shards(len(testing), 3), mode=Mode.EVALUATION, **options):
        trainer.evaluate(batch)
    values = trainer.metric_values(trainer.take_metric_states())
    for metric, goal in case.goals.items():
        assert values[metric] >= goal, values

    outputs = [
        trainer.predict(batch)
        for batch in trainer.batches(testing, shards(len(testing), 2), mode=Mode.PREDICTION, **options)
    ]
    assert sum(len(next(iter(output.values()))) for output in outputs) == len(testing)
    assert example is not None
    lines = trainer.export(tmp_path / "model", example)
    assert not any(line.startswith("no ") for line in lines), lines
    assert trainer.optimizer_config().name == "adam"
    if "cnn" in case.definition:
        found = load(case.framework).exported_outputs(tmp_path / "model", example.features)
        np.testing.assert_allclose(found, trainer.predict(example)["output"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("framework", INSTALLED)
def test_predictions_have_the_order_of_the_samples(framework: str, tmp_path: Path) -> None:
    make_digits(tmp_path / "data")
    trainer = trainer_of(f"digits.{framework}_cnn", framework)
    reader = open_reader(str(tmp_path / "data" / "test"))

    def predict(batch_size: int) -> Any:
        shard = Shard(lease_id=0, epoch=0, start=0, end=50)
        batches = trainer.batches(
            reader, [shard], mode=Mode.PREDICTION, batch_size=batch_size, max_bad_records=0
        )
        return np.concatenate([trainer.predict(batch)["output"] for batch in batches])

    np.testing.assert_allclose(predict(50), predict(7), rtol=1e-4, atol=1e-5)
