"""Every model definition of the zoo is trained, evaluated and exported. `elasticdl predict` agrees with the exports of
those that differ in kind: one output and several, in all frameworks."""

from __future__ import annotations

import importlib
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import pytest
import tensorflow as tf
import torch
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import elasticdl.paddle
from e2e.conftest import ROOT, Job
from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode

BATCH = 32
SERVED = ("--num_ps=1", "--num_workers=2")
LOCAL = ("--distribution_strategy=Local",)
FOLDERS = sorted(
    f"{path.parent.name}.{path.stem}"
    for path in (ROOT / "model_zoo").glob("*/*.py")
    # The others are programs with a loop of their own; the models of clicks are in tests of their own.
    if "def custom_model(" in path.read_text() and path.parent.name != "criteo"
)
# These are trained by two workers through a parameter server, and predict; of the others one worker is enough.
WHOLE = ("digits.", "two_towers.")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> dict[str, Path]:
    """A folder with train and test for each kind of data."""
    folder = tmp_path_factory.mktemp("zoo")
    source = folder / "source"
    source.mkdir()
    _write_idx(source)
    made = {"iris": [], "mnist": [f"--source={source}"], "movielens-like": ["--rows=8000"]}
    for name, arguments in made.items():
        command = [sys.executable, "-m", "elasticdl.cli.main", "data", "make", name, *arguments]
        subprocess.run([*command, f"--output={folder / name}"], cwd=ROOT, check=True)
    mnist = ("mnist_functional_api", "mnist_subclass", "mnist_torch")
    return {
        "digits": digits,
        "two_towers": digits,
        "iris": folder / "iris",
        "recommendation": folder / "movielens-like",
        **dict.fromkeys(mnist, folder / "mnist"),
    }


def _write_idx(folder: Path) -> None:
    """MNIST's four files, with few images: a bright square whose place tells the digit, in noise."""
    random = np.random.default_rng(0)
    for prefix, size in (("train", 640), ("t10k", 96)):
        labels = random.integers(0, 10, size, dtype=np.uint8)
        images = random.integers(0, 60, (size, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[9 * row : 9 * row + 8, 7 * column : 7 * column + 6] = 255
        header = struct.pack(">4B3I", 0, 0, 8, 3, size, 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">4BI", 0, 0, 8, 1, size)
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


@pytest.mark.parametrize("definition", FOLDERS)
def test_zoo_model_is_trained_evaluated_exported_and_predicts(
    start_job: Callable[..., Job], data: dict[str, Path], tmp_path: Path, definition: str
) -> None:
    folder = data[definition.partition(".")[0]]
    model = ("--model_zoo=model_zoo", f"--model_def={definition}.custom_model", f"--minibatch_size={BATCH}")
    export, predictions = tmp_path / "export", tmp_path / "predictions.parquet"
    digits = folder.name == "digits" and "cnn" in definition
    epochs = 8 if digits else 2
    job = start_job(
        "train",
        *model,
        *(SERVED if definition.startswith(WHOLE) else LOCAL),
        f"--training_data={folder}/train",
        f"--validation_data={folder}/test",
        f"--num_epochs={epochs}",
        f"--output={export}",
        "--job_name=zoo",
    )
    job.assert_exact(epochs=epochs, size=len(open_reader(f"{folder}/train")))
    evaluations = job.status()["evaluations"]
    assert len(evaluations) == epochs
    assert evaluations[-1]["metrics"]["loss"] < evaluations[0]["metrics"]["loss"]
    if digits:
        assert evaluations[-1]["metrics"]["accuracy"] >= 0.95
        _check_board(job, evaluations)

    module = importlib.import_module(f"model_zoo.{definition}")
    predict = next((found for name, found in _PREDICT.items() if hasattr(module, name)), _predict_with_keras)
    expected = predict(module, export, f"{folder}/test")
    if not definition.startswith(WHOLE):
        return
    job = start_job(
        "predict",
        *model,
        f"--prediction_data={folder}/test",
        f"--checkpoint_dir_for_init={export}",
        f"--output={predictions}",
        "--job_name=predict",
    )
    assert job.wait() == 0, job.output + job.logs()
    found = _read(predictions)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-4)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "index"]
    return {name: np.array(table[name].to_pylist(), np.float32) for name in names}


def _named(outputs: Any) -> dict[str, NDArray[Any]]:
    outputs = outputs if isinstance(outputs, dict) else {"output": outputs}
    return {name: np.asarray(value) for name, value in outputs.items()}


def _predict_with_keras(module: ModuleType, export: Path, origin: str) -> dict[str, NDArray[Any]]:
    reader = open_reader(origin)
    records = tf.data.Dataset.from_tensor_slices(list(reader.read(0, len(reader))))
    samples = module.feed(records, Mode.PREDICTION, reader.metadata).batch(len(reader))
    features, _ = next(iter(samples))
    loaded = _named(tf.keras.models.load_model(export, compile=False)(features, training=False))
    (output,) = {len(value) for value in loaded.values()}
    assert output == len(reader)
    # TensorFlow alone, as a server would use it: by the names of inputs.
    served = tf.saved_model.load(str(export)).signatures["serving_default"]
    names = list(served.structured_input_signature[1])
    given = features if isinstance(features, dict) else {names[0]: features}
    outputs = served(**given)
    for value in loaded.values():
        assert any(
            value.shape == other.shape and np.allclose(value, other, atol=1e-4) for other in outputs.values()
        )
    return loaded


def _predict_with_torch(module: ModuleType, export: Path, origin: str) -> dict[str, NDArray[Any]]:
    reader = open_reader(origin)
    given = list(module.feed(reader.read(0, len(reader)), Mode.PREDICTION, reader.metadata))
    given = [sample[0] if isinstance(sample, tuple) else sample for sample in given]
    if isinstance(given[0], dict):
        keywords = {name: _stack([sample[name] for sample in given]) for name in given[0]}
        arguments: tuple[torch.Tensor, ...] = ()
    else:
        keywords, arguments = {}, (_stack(given),)
    model = module.custom_model()
    model.load_state_dict(torch.load(export / "state_dict.pt", weights_only=True))
    model.eval()
    program = torch.export.load(export / "model.pt2").module()
    with torch.no_grad():
        outputs, others = model(*arguments, **keywords), program(*arguments, **keywords)
    for name, value in _named(outputs).items():
        np.testing.assert_allclose(_named(others)[name], value, rtol=1e-4, atol=1e-4)
    return _named(outputs)


def _stack(values: list[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack(values))


def _predict_with_paddle(module: ModuleType, export: Path, origin: str) -> dict[str, NDArray[Any]]:
    reader = open_reader(origin)
    given = list(module.feed(reader.read(0, len(reader)), Mode.PREDICTION, reader.metadata))
    given = [sample[0] if isinstance(sample, tuple) else sample for sample in given]
    if not isinstance(given[0], dict):
        given = [{"x": sample} for sample in given]
    features = [paddle.to_tensor(np.stack([sample[name] for sample in given])) for name in given[0]]
    model = module.custom_model()
    elasticdl.paddle.load_state(model, paddle.load(str(export / "model.pdparams")))
    program = paddle.jit.load(str(export / "model"))
    for each in (model, program):
        each.eval()
    outputs = model(*features).numpy()
    # An id that was never trained has, in a program, the mean of what rows start as.
    if not elasticdl.paddle.table_layers(model):
        np.testing.assert_allclose(program(*features).numpy(), outputs, rtol=1e-4, atol=1e-4)
    return {"output": outputs}


_PREDICT = {"paddle": _predict_with_paddle, "torch": _predict_with_torch}


def _check_board(job: Job, evaluations: list[dict[str, Any]]) -> None:
    """The master's own files for TensorBoard."""
    board = EventAccumulator(str(job.folder / "tensorboard"))
    board.Reload()
    scalars = {tag: board.Scalars(tag) for tag in board.Tags()["scalars"]}
    assert scalars["loss"][-1].step == evaluations[-1]["step"]
    assert scalars["loss"][-1].value < scalars["loss"][0].value
    assert all(point.value > 0 for point in scalars["learning_rate"])
    assert scalars["samples_per_second"][-1].value > 0
    assert scalars["workers"][-1].value >= 1
    for name in evaluations[-1]["metrics"]:
        points = scalars[f"evaluation/{name}"]
        assert [point.step for point in points] == [e["step"] for e in evaluations]
        assert [point.value for point in points] == pytest.approx([e["metrics"][name] for e in evaluations])
