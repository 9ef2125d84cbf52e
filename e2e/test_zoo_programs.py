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


@pytest.mark.parametrize("victim", ["worker-0", "master"])
def test_paddle(start_job: Callable[..., Job], gates: Gates, tmp_path: Path, victim: str) -> None:
    make = [sys.executable, "-m", "elasticdl", "data", "make", "iris", f"--file={tmp_path}/iris.data"]
    subprocess.run(make, cwd=ROOT, check=True)
    (gates.folder / "hold-fetch-worker-0").write_text("20")
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m e2e.gated_program model_zoo.iris.paddle_loop "
        f"--training_data={tmp_path}/iris.data",
        "--num_workers=1",
        "--job_name=paddle",
    )
    wait_until((gates.folder / "held-fetch-worker-0").exists, "the middle")
    programs.kill(job, victim)
    (gates.folder / "hold-fetch-worker-0").unlink()
    programs.assert_exact(job, dataset="iris_paddle", epochs=30, size=120)
    last = max(programs.nodes(job, "worker"))
    assert _accuracy(programs.log(job, last)) >= 0.9
    assert {row["again"] for row in job.audit()["rows"]} == {0}
    assert ("Goes on from" in programs.log(job, last)) == (victim == "worker-0")


@pytest.mark.parametrize("victim", ["worker-0", "master"])
def test_torch(start_job: Callable[..., Job], gates: Gates, tmp_path: Path, victim: str) -> None:
    """With two processes that load samples, which are to go when the program is killed."""
    (gates.folder / "hold-fetch-worker-0").write_text("30")
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m e2e.gated_program model_zoo.digits.torch_loop "
        f"--model={tmp_path}/model.pt",
        "--num_workers=1",
        "--job_name=torch",
    )
    wait_until((gates.folder / "held-fetch-worker-0").exists, "the middle")
    programs.kill(job, victim)
    (gates.folder / "hold-fetch-worker-0").unlink()
    programs.assert_exact(job, dataset="digits", epochs=10, size=1437)
    last = max(programs.nodes(job, "worker"))
    assert _accuracy(programs.log(job, last)) >= 0.85
    assert {row["again"] for row in job.audit()["rows"]} == {0}
    assert ("Goes on from" in programs.log(job, last)) == (victim == "worker-0")


def test_a_script(start_job: Callable[..., Job]) -> None:
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
