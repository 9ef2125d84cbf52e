"""Jobs with Paddle models in real processes: a worker killed alone and beside servers, and other numbers of nodes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest

import elasticdl.paddle
from e2e.conftest import ROOT, Job, wait_until
from elasticdl.data.dataset import open_reader
from elasticdl.jobs.mode import Mode
from elasticdl.ps.checkpoint.checkpoint_folders import versions
from model_zoo.criteo import paddle_deepfm

SIZE = 1437
DIGITS = ("--model_zoo=model_zoo", "--model_def=digits.paddle_cnn.custom_model", "--minibatch_size=32")
CLICKS = ("--model_zoo=model_zoo", "--model_def=criteo.paddle_deepfm.custom_model", "--minibatch_size=32")
ROWS = 3000


def test_the_only_worker_killed(start_job: Callable[..., Job], digits: Path, tmp_path: Path) -> None:
    """It holds the model: another one goes on from the last checkpoint, and learns as much."""
    job = start_job(
        "train",
        *DIGITS,
        "--distribution_strategy=Local",
        f"--training_data={digits}/train",
        f"--validation_data={digits}/test",
        "--num_epochs=6",
        f"--checkpoint_dir={tmp_path / 'checkpoints'}",
        "--checkpoint_steps=20",
        "--job_name=alone",
    )
    wait_until(
        lambda: max((step for step, _ in versions(tmp_path / "checkpoints")), default=0) >= 60, "step 60"
    )
    job.kill("worker-0")
    job.assert_exact(epochs=6, size=SIZE)
    assert job.status()["evaluations"][-1]["metrics"]["accuracy"] >= 0.95


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks") / "criteo"
    command = [sys.executable, "-m", "elasticdl.cli.main", "data", "make", "criteo-like"]
    subprocess.run(
        [*command, f"--rows={ROWS}", "--test_rows=1000", f"--output={folder}"], cwd=ROOT, check=True
    )
    return folder


def test_served_worker_and_server_killed_then_restored_on_other_numbers_of_nodes(
    start_job: Callable[..., Job], clicks: Path, tmp_path: Path
) -> None:
    """The model outlives its workers. Its checkpoint goes on with one server and one worker, and is evaluated alone."""
    checkpoints, data = (
        tmp_path / "checkpoints",
        (f"--training_data={clicks}/train", f"--validation_data={clicks}/test"),
    )
    job = start_job(
        "train",
        *CLICKS,
        *data,
        "--num_workers=2",
        "--num_ps=2",
        "--num_epochs=3",
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=50",
        f"--output={tmp_path / 'model'}",
        "--job_name=served",
    )
    for victim, step in (("worker-0", 40), ("ps-1", 120)):
        wait_until(lambda wanted=step: job.status().get("step", 0) >= wanted, f"step {step}")
        job.kill(victim)
    job.assert_exact(epochs=3, size=ROWS)
    assert job.status()["generation"] == 1
    metrics = job.status()["evaluations"][-1]["metrics"]
    assert metrics["auc"] > 0.66, job.output
    _check_export(tmp_path / "model", clicks)

    again = start_job(
        "train",
        *CLICKS,
        *data,
        "--num_workers=1",
        "--num_ps=1",
        "--num_epochs=1",
        f"--checkpoint_dir_for_init={checkpoints}",
        "--job_name=restored",
    )
    again.assert_exact(epochs=1, size=ROWS)
    alone = start_job(
        "evaluate", *CLICKS, data[1], f"--checkpoint_dir_for_init={checkpoints}", "--job_name=evaluated"
    )
    assert alone.wait() == 0, alone.output + alone.logs()
    assert alone.status()["evaluations"][-1]["metrics"] == pytest.approx(metrics, rel=1e-4)


def _check_export(export: Path, clicks: Path) -> None:
    """Its two forms agree."""
    reader = open_reader(f"{clicks}/train")
    samples = [sample for sample, _ in paddle_deepfm.feed(reader.read(0, 64), Mode.TRAINING, reader.metadata)]
    features = {key: paddle.to_tensor(np.stack([each[key] for each in samples])) for key in samples[0]}
    model = paddle_deepfm.custom_model()
    elasticdl.paddle.load_state(model, paddle.load(str(export / "model.pdparams")))
    model.eval()
    program = paddle.jit.load(str(export / "model"))
    program.eval()
    np.testing.assert_allclose(
        program(*features.values()).numpy(), model(**features).numpy(), rtol=1e-4, atol=1e-4
    )
