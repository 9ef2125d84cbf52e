"""The other programs of the zoo with loops of their own: Paddle, PyTorch, and a script that knows nothing of us."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until


def _accuracy(text: str) -> float:
    found = re.findall(r"accuracy:? ([\d.]+)", text)
    assert found, text
    return float(found[-1])


PADDLE = ("model_zoo.iris.paddle_loop", "--training_data={folder}/iris.data")
PADDLE_FT = ("model_zoo.digits.paddle_ft", "--model={folder}/state")
# With two processes that load samples, which are to go when the program is killed.
TORCH = ("model_zoo.digits.torch_loop", "--model={folder}/model.pt")


@pytest.mark.parametrize(
    ("program", "dataset", "epochs", "size", "accuracy"),
    [
        (PADDLE, "iris_paddle", 30, 120, 0.9),
        (PADDLE_FT, "digits", 10, 1437, 0.85),
        (TORCH, "digits", 10, 1437, 0.85),
    ],
    ids=["paddle", "paddle_ft", "torch"],
)
def test_zoo_program_survives_killed_worker_and_master(
    start_job: Callable[..., Job],
    gates: Gates,
    tmp_path: Path,
    program: tuple[str, str],
    dataset: str,
    epochs: int,
    size: int,
    accuracy: float,
) -> None:
    make = [sys.executable, "-m", "elasticdl", "data", "make", "iris", f"--file={tmp_path}/iris.data"]
    subprocess.run(make, cwd=ROOT, check=True)
    (gates.folder / "hold-fetch-worker-0").write_text("20")
    (gates.folder / "hold-fetch-worker-1").write_text("10")
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m e2e.gated_program {' '.join(program).format(folder=tmp_path)}",
        "--num_workers=1",
        "--job_name=program",
    )
    wait_until((gates.folder / "held-fetch-worker-0").exists, "the middle")
    programs.kill(job, "worker-0")
    wait_until((gates.folder / "held-fetch-worker-1").exists, "its replacement trains")
    programs.kill(job, "master")
    (gates.folder / "hold-fetch-worker-1").unlink()
    programs.assert_exact(job, dataset=dataset, epochs=epochs, size=size)
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1"}
    assert _accuracy(programs.log(job, "worker-1")) >= accuracy
    assert "Goes on from" in programs.log(job, "worker-1")
    assert {row["again"] for row in job.audit()["rows"]} == {0}


def test_zoo_script_runs_as_job_command(start_job: Callable[..., Job]) -> None:
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m model_zoo.scripts.plain --tries=2",
        "--num_workers=2",
        "--job_name=plain",
    )
    assert job.wait() == 0, job.output + job.logs()
    programs.assert_nothing_left(job)
    for number in range(2):
        text = programs.log(job, f"worker-{number}")
        assert text.startswith(f"Process {number}: ")
        assert _accuracy(text) >= 0.7
