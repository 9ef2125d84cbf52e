"""The model zoo's Keras definitions train on the data they are for, in few epochs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.bundled import make_digits
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


def test_digits_with_arguments(digits: Path) -> None:
    trainer = load("digits.keras_cnn.custom_model", filters="4", dropout="0.0")
    reader = open_reader(str(digits / "train"))
    (batch,) = trainer.batches(reader, shards(2, 2, 0), mode=Mode.TRAINING, batch_size=2, max_bad_records=0)
    trainer.build(batch)
    assert trainer.parameters().trainable["0:conv2d/kernel"].shape == (3, 3, 1, 4)


@pytest.mark.parametrize(
    "model_def",
    ["mnist_functional_api.mnist_functional_api.custom_model", "mnist_subclass.mnist_subclass.custom_model"],
)
def test_mnist_models_learn(written: Callable[..., Reader], model_def: str) -> None:
    trainer = load(model_def)
    reader = written(480)
    losses = train(trainer, reader, epochs=3, batch_size=16)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 3
    rate = trainer.learning_rate(0)
    assert rate == pytest.approx(0.001 * 0.8**2 if "subclass" in model_def else 0.1)
