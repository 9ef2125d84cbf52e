"""Any process may be killed in any phase of a job; the others go on, and the audit is exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until

SIZE = 1437
EPOCHS = 2


def _node_of(job: Any, pid: int) -> str:
    return next(name for name, process in job.processes().items() if process.pid == pid)


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_killed_while_starting(start_gated: Callable[..., Any], gates: Any, victim: str) -> None:
    gates.hold("start")
    job = start_gated()
    gates.wait_for("start", 2)
    job.kill({"worker": "worker-0", "ps": "ps-0", "master": "master"}[victim])
    gates.release("start")
    job.assert_exact(epochs=EPOCHS, size=SIZE)


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_killed_in_the_middle_of_an_epoch(start_gated: Callable[..., Any], gates: Any, victim: str) -> None:
    gates.hold("train")
    job = start_gated(environment={"ELASTICDL_TEST_SLOW": "0.01"})
    pids = gates.wait_for("train", 2)
    job.kill({"worker": _node_of(job, pids[0]), "ps": "ps-0", "master": "master"}[victim])
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    if victim == "worker":
        # Its replacement has the next number, and the other one was not restarted.
        names = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
        assert names == {"worker-0", "worker-1", "worker-2"}


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_killed_between_epochs(start_gated: Callable[..., Any], gates: Any, victim: str) -> None:
    gates.hold("epoch-0")
    job = start_gated()
    pids = gates.wait_for("epoch-0")
    job.kill({"worker": _node_of(job, pids[0]), "ps": "ps-0", "master": "master"}[victim])
    gates.release("epoch-0")
    job.assert_exact(epochs=EPOCHS, size=SIZE)


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_killed_while_evaluating(start_gated: Callable[..., Any], gates: Any, victim: str) -> None:
    gates.hold("evaluate")
    job = start_gated("--evaluation_steps=20")
    pids = gates.wait_for("evaluate")
    job.kill({"worker": _node_of(job, pids[0]), "ps": "ps-0", "master": "master"}[victim])
    gates.release("evaluate")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    status = job.status()
    assert {e["epoch"] for e in status["evaluations"]} >= {0, 1}


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_killed_around_checkpoints(start_gated: Callable[..., Any], tmp_path: Path, victim: str) -> None:
    """Checkpoints every second step: whenever it is, a kill is near one."""
    checkpoints = tmp_path / "checkpoints"
    job = start_gated(
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=2",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    for round_number in range(3):
        wait_until(
            lambda: len(list(checkpoints.glob("version-*"))) or job.process.poll() is not None, "a checkpoint"
        )
        number = {"worker": round_number, "ps": round_number}.get(victim)
        if job.process.poll() is None:
            job.kill(victim if number is None else f"{victim}-{number}")
    job.assert_exact(epochs=EPOCHS, size=SIZE)


@pytest.mark.parametrize("victim", ["worker", "master"])
def test_killed_at_the_end(start_gated: Callable[..., Any], gates: Any, tmp_path: Path, victim: str) -> None:
    gates.hold("epoch-1")
    job = start_gated(f"--output={tmp_path / 'model'}")
    pids = gates.wait_for("epoch-1")
    job.kill(_node_of(job, pids[0]) if victim == "worker" else "master")
    gates.release("epoch-1")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert (tmp_path / "model" / "state_dict.pt").exists()


def test_the_only_worker_of_a_local_job(start_gated: Callable[..., Any], gates: Any) -> None:
    """It holds the model, so the job goes back to its last checkpoint: the end of the first epoch."""
    gates.hold("epoch-0")
    job = start_gated("--distribution_strategy=Local", "--num_workers=1", "--num_ps=0")
    gates.wait_for("epoch-0")
    gates.hold("train")
    gates.release("epoch-0")
    wait_until(lambda: job.status().get("epoch") == 1, "the second epoch")
    job.kill("worker-0")
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)


# With a checkpoint at the end of each epoch, with some inside of it, and with a model that outlives its workers.
WHERE = {
    "local": ("--distribution_strategy=Local", "--num_workers=1", "--num_ps=0"),
    "checkpoints": (
        "--distribution_strategy=Local",
        "--num_workers=1",
        "--num_ps=0",
        "--checkpoint_steps=10",
    ),
    "served": ("--num_ps=1", "--num_workers=1"),
}


@pytest.mark.parametrize("callbacks", ["reducing", "multiplying"])
@pytest.mark.parametrize("where", WHERE)
def test_replacement_goes_on_with_the_learning_rate(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path, where: str, callbacks: str
) -> None:
    """The rate that each batch is trained with is that of its epoch, whoever trains it."""
    gates.hold("train-3")
    job = start_gated(
        *WHERE[where],
        f"--callbacks={callbacks}",
        f"--checkpoint_dir={tmp_path}/checkpoints",
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
    first = 0.01
    assert sorted(found) == [
        (epoch, pytest.approx(first * factor, rel=1e-6))
        for epoch, factor in enumerate([1, 1, 0.5, 0.25, 0.125])
    ]
    epochs = {
        json.loads(line)[0] for line in (gates.folder / "rates-worker-1.jsonl").read_text().splitlines()
    }
    assert epochs >= {3, 4}
