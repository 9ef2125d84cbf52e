"""Whole jobs with Keras models: callbacks, learning rates, feeds that reorder, and numbers that are those of Keras."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from e2e.conftest import ROOT, Job
from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode

SIZE = 1437
BATCH = 32
STEPS = -(-SIZE // BATCH)
SERVED = ("--num_ps=1", "--num_workers=2")
LOCAL = ("--distribution_strategy=Local",)


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity", ROOT / "e2e/zoo/parity/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def train(start_job: Callable[..., Job], digits: Path) -> Callable[..., Job]:
    def start(*arguments: str, name: str = "parity") -> Job:
        return start_job(
            "train",
            "--model_zoo=e2e/zoo",
            "--model_def=parity.model.custom_model",
            f"--training_data={digits}/train",
            f"--minibatch_size={BATCH}",
            "--num_epochs=2",
            f"--job_name={name}",
            # Who is held for long here does not hang.
            "--stall_factor=0",
            *arguments,
        )

    return start


@pytest.fixture
def predict(start_job: Callable[..., Job], digits: Path, tmp_path: Path) -> Callable[[Path], NDArray[Any]]:
    """What `elasticdl predict` makes of the test data."""

    def run(model: Path) -> NDArray[Any]:
        import pyarrow.parquet as pq

        output = tmp_path / "predictions.parquet"
        job = start_job(
            "predict",
            "--model_zoo=e2e/zoo",
            "--model_def=parity.model.custom_model",
            "--model_params=noisy=true",
            f"--prediction_data={digits}/test",
            f"--checkpoint_dir_for_init={model}",
            f"--minibatch_size={BATCH}",
            f"--output={output}",
            "--job_name=predict",
        )
        assert job.wait() == 0, job.output + job.logs()
        return np.stack(pq.read_table(output)["output"].to_numpy())

    return run


def _dataset(parity: ModuleType, folder: Path) -> Any:
    reader = open_reader(str(folder))
    records = tf.data.Dataset.from_tensor_slices(list(reader.read(0, len(reader))))
    return parity.feed(records, Mode.TRAINING, reader.metadata)


def _values(gates: Any, epoch: int) -> list[NDArray[Any]]:
    """What the first worker's callback saw at the end of an epoch."""
    with np.load(gates.folder / f"values-worker-0-{epoch}.npz") as file:
        return [file[name] for name in file.files]


def _same(left: list[NDArray[Any]], right: list[NDArray[Any]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_callbacks_hear_everything_and_metrics_are_exact(
    train: Callable[..., Job],
    predict: Callable[[Path], NDArray[Any]],
    parity: ModuleType,
    gates: Any,
    digits: Path,
    tmp_path: Path,
) -> None:
    """Two workers, batches normalized and dropout; each has a batch in hand before any is computed."""
    gates.hold("train")
    model = tmp_path / "model.keras"
    with_board = importlib.util.find_spec("tensorboard") is not None
    job = train(
        *SERVED,
        "--model_params=noisy=true",
        f"--callbacks={'boarding' if with_board else 'recording'}",
        f"--validation_data={digits}/test",
        f"--output={model}",
    )
    gates.wait_for("train", 2)
    gates.release("train")
    job.assert_exact(epochs=2, size=SIZE)

    events = [json.loads(line) for line in (gates.folder / "events-worker-0.jsonl").read_text().splitlines()]
    letters = {"train": "T", "epoch": "E", "train_batch": "B", "test": "V", "test_batch": "b"}
    text = ""
    for event, _, _ in events:
        named = re.fullmatch(r"on_(.*)_(begin|end)", event)
        assert named is not None, event
        what, side = named.groups()
        text += ("<" if side == "begin" else ">") + letters[what]
    # All of an evaluation, and of the second epoch, may have been done by the other worker.
    evaluation = r"(<V(<b>b)*>V)*"
    assert re.fullmatch(f"<T<E(<B>B)+{evaluation}>E<E(<B>B)*{evaluation}>E>T", text), text
    ends = [(number, logs) for event, number, logs in events if event == "on_epoch_end"]
    assert [number for number, _ in ends] == [0, 1]
    assert all(set(logs) == {"loss", "val_loss", "val_auc", "val_accuracy"} for _, logs in ends)
    assert ends[1][1]["loss"] < ends[0][1]["loss"]

    # The last evaluation, added up of what two workers did, is that of the exported model in one piece.
    predictions = predict(model)
    labels = np.stack([label for _, label in _dataset(parity, digits / "test").as_numpy_iterator()])
    metrics = job.status()["evaluations"][-1]["metrics"]
    for name, metric in parity.eval_metrics_fn().items():
        metric.update_state(labels, predictions)
        assert metrics[name] == pytest.approx(float(metric.result()), abs=1e-6)
    assert metrics["loss"] == pytest.approx(float(np.mean(parity.loss(labels, predictions))), rel=1e-5)
    assert metrics["auc"] > 0.9

    images = np.stack([image for image, _ in _dataset(parity, digits / "test").as_numpy_iterator()])
    loaded = tf.keras.models.load_model(model, compile=False)
    np.testing.assert_allclose(loaded.predict(images, verbose=0), predictions, rtol=1e-4, atol=1e-5)
    if with_board:
        _check_board(gates.folder)


def _check_board(folder: Path) -> None:
    """Keras's files for TensorBoard are written by one of the two workers."""
    assert [path.name for path in folder.glob("board-*")] == ["board-worker-0"]
    tags = {
        value.tag
        for path in folder.glob("board-*/**/*tfevents*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert {"epoch_loss", "epoch_accuracy", "epoch_auc"} <= tags


def test_early_stopping_ends_the_job_on_purpose_at_the_end_of_an_epoch(
    train: Callable[..., Job], digits: Path
) -> None:
    job = train(*SERVED, "--callbacks=stopping", f"--validation_data={digits}/test", "--num_epochs=5")
    job.assert_exact(epochs=2, size=SIZE)
    rows = [row for row in job.audit()["rows"] if row["dataset"] == "training"]
    assert [row["stopped"] for row in rows] == [False, True]
    assert "ended on purpose with 0 left" in job.output


@pytest.mark.parametrize(
    ("how", "learns"),
    [
        ("--callbacks=plateau --optimizer=sgd", 2),
        ("--callbacks=values --optimizer=decaying", 2),
    ],
    ids=["callback", "schedule"],
)
def test_learning_rates_reach_the_optimizer(
    train: Callable[..., Job], gates: Any, digits: Path, how: str, learns: int
) -> None:
    """On a server; each rate is 0 from some epoch on: until then values change, from then on they don't."""
    job = train(
        *how.split(), "--num_ps=1", "--num_workers=1", f"--validation_data={digits}/test", "--num_epochs=4"
    )
    job.assert_exact(epochs=4, size=SIZE)
    seen = [_values(gates, epoch) for epoch in range(4)]
    changed = [not _same(seen[epoch - 1], seen[epoch]) for epoch in range(1, 4)]
    assert changed == [epoch < learns for epoch in range(1, 4)]


@pytest.mark.parametrize(
    ("where", "optimizer"),
    [
        (LOCAL, "optimizer"),
        (("--num_ps=2", "--num_workers=1"), "momentum"),
    ],
    ids=["local-adam", "served-momentum"],
)
def test_one_worker_computes_what_keras_computes(
    train: Callable[..., Job],
    parity: ModuleType,
    digits: Path,
    tmp_path: Path,
    where: tuple[str, ...],
    optimizer: str,
) -> None:
    output = tmp_path / "model.keras"
    job = train(*where, f"--optimizer={optimizer}", "--shuffle=false", f"--output={output}")
    job.assert_exact(epochs=2, size=SIZE)

    model = parity.custom_model()
    native = getattr(parity, optimizer)()
    before = model.get_weights()
    for _ in range(2):
        for images, labels in _dataset(parity, digits / "train").batch(BATCH):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(parity.loss(labels, model(images, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            native.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    found = tf.keras.models.load_model(output, compile=False).get_weights()
    for start, expected, value in zip(before, model.get_weights(), found, strict=True):
        assert np.abs(expected - start).max() > 0.01
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=2e-5)


def test_a_worker_killed_with_a_feed_that_is_shuffling_and_filtering(
    train: Callable[..., Job], gates: Any
) -> None:
    """With one that keeps the order this is done by README.md."""
    gates.hold("train")
    job = train(*SERVED, "--feed=shuffling_and_filtering", "--num_minibatches_per_task=4")
    victim = gates.wait_for("train", 2)[0]
    next(process for process in job.processes().values() if process.pid == victim).kill()
    gates.release("train")
    job.assert_exact(epochs=2, size=SIZE)


@pytest.mark.parametrize(
    "where", [(*LOCAL, "--checkpoint_steps=10"), ("--num_ps=1", "--num_workers=1")], ids=["local", "served"]
)
def test_the_only_worker_killed_and_its_learning_rate(
    train: Callable[..., Job], gates: Any, digits: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    """Each batch is trained with the rate of its epoch, on every worker."""
    gates.hold("train-3")
    job = train(
        *where,
        "--callbacks=reducing_and_multiplying",
        "--optimizer=sgd",
        f"--checkpoint_dir={tmp_path}/checkpoints",
        f"--validation_data={digits}/test",
        "--num_epochs=5",
    )
    gates.wait_for("train-3")
    job.kill("worker-0")
    gates.release("train-3")
    job.assert_exact(epochs=5, size=SIZE)
    found = {
        tuple(json.loads(line))
        for path in gates.folder.glob("rates-*")
        for line in path.read_text().splitlines()
    }
    first = 0.1
    assert sorted(found) == [
        (epoch, pytest.approx(first * factor, rel=1e-6))
        for epoch, factor in enumerate([1, 1, 1 / 4, 1 / 16, 1 / 64])
    ]
    epochs = {
        json.loads(line)[0] for line in (gates.folder / "rates-worker-1.jsonl").read_text().splitlines()
    }
    assert epochs >= {3, 4}
