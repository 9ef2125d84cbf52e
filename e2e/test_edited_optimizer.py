"""A job goes on from the end of an epoch with an optimizer of the user's own that has been edited since: its first
evaluation and its first checkpoint have every row that was learned.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.conftest import ROOT, Job
from elasticdl.ps.checkpoint.checkpoint_folders import chain, read_checkpoint, versions
from elasticdl.ps.checkpoint.table_files import SavedTables

ROWS = 640
DEFINITION = """
from edited.plain import Plain
from model_zoo.criteo.torch_deepfm import custom_model, eval_metrics_fn, feed, loss


def optimizer(parameters):
    return Plain(0.05)
"""
OPTIMIZER = """
import elasticdl


class Plain(elasticdl.Optimizer):
    slots = {"last": 0.0}

    def update(self, value, gradient, slots, learning_rate, step):
        slots["last"] = gradient
        return value - learning_rate * gradient
"""


def test_resumed_job_with_edited_optimizer_keeps_every_trained_row(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    clicks, checkpoints, zoo = tmp_path / "criteo", tmp_path / "checkpoints", tmp_path / "zoo"
    command = [sys.executable, "-m", "elasticdl.cli.main", "data", "make", "criteo-like"]
    subprocess.run(
        [*command, f"--rows={ROWS}", "--test_rows=320", f"--output={clicks}"], cwd=ROOT, check=True
    )
    (zoo / "edited").mkdir(parents=True)
    (zoo / "edited" / "deepfm.py").write_text(DEFINITION)
    (zoo / "edited" / "plain.py").write_text(OPTIMIZER)
    arguments = (
        "train",
        f"--model_zoo={zoo}",
        "--model_def=edited.deepfm.custom_model",
        "--minibatch_size=32",
        "--num_workers=1",
        "--num_ps=2",
        f"--training_data={clicks}/train",
        f"--validation_data={clicks}/test",
        f"--checkpoint_dir={checkpoints}",
    )
    first = start_job(*arguments, "--num_epochs=1", "--job_name=first")
    first.assert_exact(epochs=1, size=ROWS)
    (zoo / "edited" / "plain.py").write_text(f"{OPTIMIZER}\n# What it does now is said elsewhere.\n")
    second = start_job(
        *arguments, "--num_epochs=2", f"--checkpoint_dir_for_init={checkpoints}", "--job_name=second"
    )
    assert second.wait() == 0, second.output + second.logs()
    ends = [
        {each["step"]: each["metrics"] for each in job.status()["evaluations"]} for job in (first, second)
    ]
    step = ROWS // 32
    assert ends[1].keys() == {step, 2 * step}
    assert ends[1][step] == pytest.approx(ends[0][step], rel=1e-4)
    assert [found for found, _ in versions(checkpoints)] == [step, 2 * step]
    for _, path in versions(checkpoints):
        with SavedTables([each.data_files() for each in chain(read_checkpoint(path))]) as saved:
            assert saved.descriptions.keys() == {"categories"}
