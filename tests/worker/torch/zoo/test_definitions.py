"""Every PyTorch definition of the model zoo learns its data, and can be evaluated, used and exported."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import datasets

from elasticdl.data.example import encode_example
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard
from elasticdl.worker.trainer_factory import make_trainer


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These models are too small for more, and tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


ZOO = Path(__file__).parents[4] / "model_zoo"
SPECIES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")


def digits() -> list[Any]:
    data = datasets.load_digits()
    return [
        encode_example({"image": (image / 16).astype(np.float32), "label": int(label)})
        for image, label in zip(data.images, data.target, strict=True)
    ]


def large_digits() -> list[Any]:
    """Of MNIST's form: the same digits with every pixel four wide and a margin around, up to 255."""
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


DEFINITIONS: list[tuple[str, Callable[[], list[Any]], int, dict[str, float]]] = [
    ("digits.torch_cnn.custom_model", digits, 5, {"accuracy": 0.95}),
    ("mnist_torch.mnist_torch.custom_model", large_digits, 6, {"accuracy": 0.9, "top_3": 0.95}),
    ("iris.torch_dnn.custom_model", irises, 30, {"accuracy": 0.85, "f1": 0.85}),
    ("two_towers.torch_two_towers.custom_model", digits, 6, {"digit_accuracy": 0.9, "even_auc": 0.95}),
]


def trainer_of(name: str) -> TorchTrainer:
    torch.manual_seed(0)
    definition = load_definition(model_zoo=str(ZOO), model_def=name, names={}, model_params={})
    trainer = make_trainer(definition)
    assert isinstance(trainer, TorchTrainer)
    return trainer


def shards(size: int, count: int) -> list[Shard]:
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    return [Shard(lease_id=i, epoch=0, start=edges[i], end=edges[i + 1]) for i in range(count)]


@pytest.mark.parametrize(("name", "data", "epochs", "goals"), DEFINITIONS)
def test_learns(
    name: str,
    data: Callable[[], list[Any]],
    epochs: int,
    goals: dict[str, float],
    memory_reader: Any,
    tmp_path: Path,
) -> None:
    records = data()
    np.random.default_rng(0).shuffle(records)
    border = len(records) * 4 // 5
    training, testing = memory_reader(records[:border]), memory_reader(records[border:])
    trainer = trainer_of(name)
    options: dict[str, Any] = {"batch_size": 32, "max_bad_records": 0}
    runner = trainer.callbacks(leader=True, epochs=epochs)
    example: Batch | None = None
    for epoch in range(epochs):
        runner.fire("on_epoch_begin", epoch, {})
        for batch in trainer.batches(training, shards(border, 5), mode=Mode.TRAINING, **options):
            assert not batch.atomic
            example = example or batch
            trainer.train(batch)
    for batch in trainer.batches(testing, shards(len(testing), 3), mode=Mode.EVALUATION, **options):
        trainer.evaluate(batch)
    values = trainer.metric_values(trainer.take_metric_states())
    for metric, goal in goals.items():
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


def test_rows_without_a_species_can_be_predicted_for(memory_reader: Any) -> None:
    trainer = trainer_of("iris.torch_dnn.custom_model")
    reader = memory_reader([["5.1", "3.5", "1.4", "0.2"]] * 3, kind="row")
    (batch,) = trainer.batches(reader, shards(3, 1), mode=Mode.PREDICTION, batch_size=8, max_bad_records=0)
    assert trainer.predict(batch)["output"].shape == (3, 3)
