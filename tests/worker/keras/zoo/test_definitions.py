"""The model zoo's Keras definitions train on the data they are for, in few epochs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.bundled import make_digits, make_iris
from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.trainer import Shard, Trainer
from elasticdl.worker.trainer_factory import make_trainer

ZOO = Path(__file__).parents[4] / "model_zoo"
NAMES = {name: name for name in ("feed", "loss", "optimizer", "eval_metrics_fn", "callbacks")}


def load(model_def: str, **params: str) -> Trainer:
    definition = load_definition(model_zoo=str(ZOO), model_def=model_def, names=NAMES, model_params=params)
    return make_trainer(definition)


def shards(size: int, length: int, seed: int) -> list[Shard]:
    starts = np.random.default_rng(seed).permutation(np.arange(0, size, length))
    return [
        Shard(lease_id=i, epoch=seed, start=int(start), end=min(int(start) + length, size))
        for i, start in enumerate(starts)
    ]


def train(trainer: Trainer, reader: Reader, *, epochs: int, batch_size: int = 32) -> list[float]:
    losses: list[float] = []
    runner = trainer.callbacks(leader=True, epochs=epochs)
    runner.fire("on_train_begin", {})
    parts = [part for epoch in range(epochs) for part in shards(len(reader), 8 * batch_size, epoch)]
    epoch = -1
    for batch in trainer.batches(reader, parts, mode=Mode.TRAINING, batch_size=batch_size, max_bad_records=0):
        if batch.shard.epoch != epoch:
            if epoch >= 0:
                runner.fire("on_epoch_end", epoch, {"loss": losses[-1]})
            epoch = batch.shard.epoch
            runner.fire("on_epoch_begin", epoch, {})
        losses.append(trainer.train(batch))
    runner.fire("on_epoch_end", epoch, {"loss": losses[-1]})
    return losses


def evaluate(trainer: Trainer, reader: Reader) -> dict[str, float]:
    parts = shards(len(reader), 100, 0)
    for batch in trainer.batches(reader, parts, mode=Mode.EVALUATION, batch_size=32, max_bad_records=0):
        trainer.evaluate(batch)
    return trainer.metric_values(trainer.take_metric_states())


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    make_digits(folder / "data")
    return folder / "data"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Reader]:
    """Examples like those of MNIST: each digit a bright bar at a place of its own."""

    def make(count: int) -> Reader:
        from elasticdl.data.example import encode_example
        from elasticdl.data.formats.recordio import RecordIOWriter

        random = np.random.default_rng(0)
        with RecordIOWriter(tmp_path / "records.edl") as writer:
            for _ in range(count):
                label = int(random.integers(10))
                image = random.uniform(0, 60, (28, 28)).astype(np.float32)
                image[2 * label + 3 : 2 * label + 6, 5:23] = 255
                writer.write(encode_example({"image": image, "label": label}))
        return open_reader(str(tmp_path / "records.edl"))

    return make


def test_digits(digits: Path) -> None:
    trainer = load("digits.keras_cnn.custom_model")
    train(trainer, open_reader(str(digits / "train")), epochs=6)
    assert evaluate(trainer, open_reader(str(digits / "test")))["accuracy"] >= 0.97


def test_digits_with_arguments(digits: Path) -> None:
    trainer = load("digits.keras_cnn.custom_model", filters="4", dropout="0.0")
    reader = open_reader(str(digits / "train"))
    (batch,) = trainer.batches(reader, shards(2, 2, 0), mode=Mode.TRAINING, batch_size=2, max_bad_records=0)
    trainer.build(batch)
    assert trainer.parameters().trainable["0:conv2d/kernel"].shape == (3, 3, 1, 4)


def test_two_towers(digits: Path) -> None:
    trainer = load("two_towers.keras_two_towers.custom_model")
    train(trainer, open_reader(str(digits / "train")), epochs=6)
    found = evaluate(trainer, open_reader(str(digits / "test")))
    assert found["digit_accuracy"] >= 0.93
    assert found["even_auc"] >= 0.95


def test_iris(tmp_path: Path) -> None:
    make_iris(tmp_path / "iris")
    trainer = load("iris.keras_dnn.custom_model")
    train(trainer, open_reader(str(tmp_path / "iris" / "train")), epochs=30, batch_size=16)
    assert evaluate(trainer, open_reader(str(tmp_path / "iris" / "test")))["accuracy"] >= 0.9


@pytest.mark.parametrize(
    "model_def",
    ["mnist_functional_api.mnist_functional_api.custom_model", "mnist_subclass.mnist_subclass.custom_model"],
)
def test_mnist(written: Callable[..., Reader], model_def: str) -> None:
    trainer = load(model_def)
    reader = written(480)
    losses = train(trainer, reader, epochs=3, batch_size=16)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 3
    rate = trainer.learning_rate(0)
    assert rate == pytest.approx(0.001 * 0.8**2 if "subclass" in model_def else 0.1)


def test_predictions_come_in_the_order_of_the_samples(digits: Path) -> None:
    trainer = load("digits.keras_cnn.custom_model")
    reader = open_reader(str(digits / "test"))

    def predict(batch_size: int) -> Any:
        parts = [Shard(lease_id=0, epoch=0, start=0, end=50)]
        batches = trainer.batches(
            reader, parts, mode=Mode.PREDICTION, batch_size=batch_size, max_bad_records=0
        )
        return np.concatenate([trainer.predict(batch)["output"] for batch in batches])

    np.testing.assert_allclose(predict(50), predict(7), rtol=1e-4, atol=1e-5)
