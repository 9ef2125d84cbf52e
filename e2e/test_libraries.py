"""Programs with loops of other libraries, whose workers are killed and drained: the training stays one and exact."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import Gates, Job, wait_until

SIZE, EPOCHS = 1437, 2
# Batches of 16, two a step.
STEPS = 45
_UNNAMED = "_EDL_DEFAULT_TRAINING_DATA"


# With the accuracy that two epochs reach at least.
LIBRARIES = [
    pytest.param("elastic_loop", "{folder}/{program}.pt", 0.7, id="plain"),
    pytest.param("accelerate_loop", "{folder}/{program}.pt", 0.7, id="accelerate"),
    pytest.param("transformers_trainer", "{folder}/{program}", 0.3, id="transformers"),
    pytest.param("lightning_trainer", "{folder}/{program}", 0.7, id="lightning"),
]


@pytest.mark.parametrize(("program", "output", "accuracy"), LIBRARIES)
def test_worker_killed_and_another_drained(
    start_job: Callable[..., Job],
    gates: Gates,
    tmp_path: Path,
    program: str,
    output: str,
    accuracy: float,
) -> None:
    """Killed in the first epoch; its replacement joins in the second, in which another one is drained."""
    output = output.format(folder=tmp_path, program=program)
    (gates.folder / "hold").write_text("0")
    # Transformers imports the compiler itself.
    gated = "e2e.gated_loop" + (" --with_compiler" if program == "transformers_trainer" else "")
    arguments = f"--num_epochs={EPOCHS} --output={output}"
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m {gated} model_zoo.digits.{program} {arguments}",
        "--num_workers=2",
        "--distribution_strategy=AllreduceStrategy",
        "--job_name=library",
        # Who is held for long here does not hang.
        "--stall_factor=0",
    )
    _until(job, lambda: len(_members(job)) == 2, "both are there")
    _hold(gates, job, 10, "worker-0", "worker-1")
    programs.kill(job, "worker-1")
    _until(job, lambda: "worker-2" in _members(job), "its replacement is ready")
    _hold(gates, job, STEPS + 10, "worker-0", "worker-2")
    assert job.command("jobs", "scale", "library", "--num_workers=1").returncode == 0
    _until(job, lambda: len(_members(job)) == 1, "one is drained")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset=_UNNAMED, epochs=EPOCHS, size=SIZE)
    assert not any(row["again"] for row in job.audit()["rows"])
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1", "worker-2"}
    text = programs.log(job, "worker-0") + programs.log(job, "worker-2")
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+)", text)]
    assert accuracies, text
    assert max(accuracies) >= accuracy
    assert Path(output).exists()
    # Those of the training, also in the worker that joined late: what is printed is printed at the ends of epochs.
    steps = {int(step) for step in re.findall(r"\bstep (\d+)", text)}
    assert steps <= {STEPS * epoch for epoch in range(1, EPOCHS + 1)}
    assert not steps or max(steps) == EPOCHS * STEPS


def test_jax_worker_killed_goes_on_from_what_it_reported(
    start_job: Callable[..., Job], gates: Gates, tmp_path: Path
) -> None:
    (gates.folder / "hold-fetch-worker-0").write_text("20")
    job = start_job(
        "train",
        f"--job_command={sys.executable} -m e2e.gated_program model_zoo.digits.jax_loop --model={tmp_path}/model.npz",
        "--num_workers=1",
        "--job_name=jax",
    )
    wait_until((gates.folder / "held-fetch-worker-0").exists, "the middle")
    programs.kill(job, "worker-0")
    programs.assert_exact(job, dataset="digits", epochs=10, size=SIZE)
    text = programs.log(job, "worker-1")
    assert "Goes on from" in text
    assert float(re.findall(r"Final accuracy: ([\d.]+)", text)[-1]) >= 0.85
    assert not any(row["again"] for row in job.audit()["rows"])


def _members(job: Job) -> list[str]:
    """Of the newest round, the oldest first."""
    found: list[str] = re.findall(r"Round \d+: (.*)\.", programs.log(job, "master"))
    return found[-1].split(", ") if found else []


def _hold(gates: Gates, job: Job, step: int, *workers: str) -> None:
    """Lets them train up to this step, and waits for them there."""
    new = gates.folder / "new"
    new.write_text(str(step))
    new.replace(gates.folder / "hold")
    for worker in workers:
        held = gates.folder / f"held-{step}-{worker}"
        _until(job, held.exists, f"{worker} is at step {step}")


def _until(job: Job, condition: Callable[[], Any], what: str) -> None:
    """As `wait_until`, but not beyond the end of the job."""
    wait_until(lambda: condition() or job.process.poll() is not None, what)
    assert condition(), f"the job ended before: {what}\n{job.output}\n{job.logs()}"
