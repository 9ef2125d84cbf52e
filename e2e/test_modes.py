"""Evaluate, predict, synchronous training: whole runs of each. Job files and the Python API are run by their guides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from e2e.conftest import wait_until
from elasticdl.ps.core.buckets import BUCKETS

SIZE = 1437
TEST_SIZE = 360
MODEL = ("--model_zoo=e2e/zoo", "--model_def=gated.model.custom_model")


def test_evaluate_with_a_worker_killed_equals_the_evaluation_of_the_training(
    start_job: Callable[..., Any], gates: Any, finished: Any, digits: Path
) -> None:
    gates.hold("evaluate")
    job = start_job(
        "evaluate",
        *MODEL,
        f"--validation_data={digits}/test",
        f"--checkpoint_dir_for_init={finished.model}",
        "--num_workers=2",
        "--minibatch_size=16",
        "--job_name=killed",
    )
    pid = gates.wait_for("evaluate")[0]
    next(p for p in job.processes().values() if p.pid == pid).kill()
    gates.release("evaluate")
    assert job.wait() == 0, job.output
    assert [row["done"] for row in job.audit()["rows"]] == [TEST_SIZE]
    assert job.status()["evaluations"][-1]["metrics"] == pytest.approx(finished.metrics, rel=1e-6)


def test_predict_gives_every_sample_once_and_in_order(
    start_job: Callable[..., Any], finished: Any, digits: Path, tmp_path: Path
) -> None:
    output = tmp_path / "predictions.parquet"
    job = start_job(
        "predict",
        *MODEL,
        f"--prediction_data={digits}/test",
        f"--checkpoint_dir_for_init={finished.model}",
        "--num_workers=2",
        "--minibatch_size=16",
        "--num_minibatches_per_task=2",
        f"--output={output}",
        "--job_name=predict",
    )
    assert job.wait() == 0, job.output
    assert pq.read_table(output)["index"].to_pylist() == list(range(TEST_SIZE))


def test_synchronous_training(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    job = start_gated("--use_async=false", "--grads_to_wait=2", "--sync_version_tolerance=1")
    gates.wait_for("train", 2)
    gates.release("train")
    job.assert_exact(epochs=2, size=SIZE)


def test_synchronous_step_goes_on_after_lost_worker(start_gated: Callable[..., Any], gates: Any) -> None:
    """The remaining workers' gradients are added up, below the number that is waited for."""
    gates.hold("train")
    job = start_gated("--num_ps=2", "--ps_replicas=1", "--grads_to_wait=3", "--sync_version_tolerance=1")
    pids = gates.wait_for("train", 2)
    buckets = job.status()["buckets"]
    assert buckets["with_one_copy"] == sum(buckets["by_server"].values()) == BUCKETS
    # The one that comes in its place is of no help.
    gates.hold("start")
    job.kill(next(name for name, process in job.processes().items() if process.pid == pids[0]))
    gates.release("train")
    wait_until(lambda: job.status()["samples_done"] > SIZE // 3, "the other one trains on")
    gates.release("start")
    job.assert_exact(epochs=2, size=SIZE)
