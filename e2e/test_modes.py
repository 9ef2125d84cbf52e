"""Evaluate, predict, synchronous training, job files, the Python API: whole runs of each."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import ROOT

SIZE = 1437
TEST_SIZE = 360
MODEL = ("--model_zoo=e2e/zoo", "--model_def=gated.model.custom_model")


@pytest.fixture
def trained(start_gated: Callable[..., Any], tmp_path: Path) -> Path:
    model = tmp_path / "model"
    start_gated("--num_epochs=1", f"--output={model}", "--job_name=trained").assert_exact(epochs=1, size=SIZE)
    return model


def test_evaluate_with_a_worker_killed_equals_evaluate_without(
    start_job: Callable[..., Any], gates: Any, trained: Path, digits: Path
) -> None:
    values = []
    for name in ("calm", "killed"):
        gates.hold("evaluate") if name == "killed" else None
        for path in gates.folder.glob("passed-evaluate-*"):
            path.unlink()
        job = start_job(
            "evaluate",
            *MODEL,
            f"--validation_data={digits}/test",
            f"--checkpoint_dir_for_init={trained}",
            "--num_workers=2",
            "--minibatch_size=16",
            f"--job_name={name}",
        )
        if name == "killed":
            pid = gates.wait_for("evaluate")[0]
            next(p for p in job.processes().values() if p.pid == pid).kill()
            gates.release("evaluate")
        assert job.wait() == 0, job.output
        rows = job.audit()["rows"]
        assert [row["done"] for row in rows] == [TEST_SIZE]
        values.append(job.status()["evaluations"][-1]["metrics"])
    assert values[0] == values[1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predict_gives_every_sample_once_and_in_order(
    start_job: Callable[..., Any], trained: Path, digits: Path, tmp_path: Path, suffix: str
) -> None:
    output = tmp_path / f"predictions{suffix}"
    job = start_job(
        "predict",
        *MODEL,
        f"--prediction_data={digits}/test",
        f"--checkpoint_dir_for_init={trained}",
        "--num_workers=2",
        "--minibatch_size=16",
        "--num_minibatches_per_task=2",
        f"--output={output}",
        "--job_name=predict",
    )
    assert job.wait() == 0, job.output
    if suffix == ".csv":
        with output.open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["index"]) for row in rows] == list(range(TEST_SIZE))
        assert {f"output_{i}" for i in range(10)} <= set(rows[0])
    else:
        import pyarrow.parquet as pq

        assert pq.read_table(output)["index"].to_pylist() == list(range(TEST_SIZE))


def test_synchronous_training(start_gated: Callable[..., Any]) -> None:
    job = start_gated(
        "--use_async=false", "--grads_to_wait=2", "--num_epochs=2", "--sync_version_tolerance=1"
    )
    job.assert_exact(epochs=2, size=SIZE)


def test_job_file_with_flags_above_it(start_job: Callable[..., Any], digits: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "job_name: from-file\n"
        "model: {model_zoo: e2e/zoo, model_def: gated.model.custom_model}\n"
        f"data: {{training_data: {digits}/train}}\n"
        "training: {num_epochs: 7, minibatch_size: 64}\n"
    )
    job = start_job("train", "-f", str(file), "--num_epochs=1", "--job_name=from-flags")
    job.assert_exact(epochs=1, size=SIZE)


def test_the_same_from_python(digits: Path, gates: Any, tmp_path: Path) -> None:
    program = (
        "import elasticdl, json\n"
        "result = elasticdl.run(model_zoo='e2e/zoo', model_def='gated.model.custom_model',\n"
        f"    training_data='{digits}/train', validation_data='{digits}/test', num_epochs=1)\n"
        "print(json.dumps([result.succeeded, result.state, result.metrics]))\n"
    )
    import os

    environment = {
        **os.environ,
        "ELASTICDL_HOME": str(tmp_path / "home"),
        "ELASTICDL_TEST_GATES": str(gates.folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    succeeded, state, metrics = json.loads(done.stdout.splitlines()[-1])
    assert (succeeded, state) == (True, "succeeded")
    assert metrics["accuracy"] > 0.5
