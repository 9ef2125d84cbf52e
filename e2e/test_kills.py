"""Any process may be killed in any phase of a job; the others go on, and the audit is exact.

One role is killed in every phase of one job: each phase begins with what the kill before it has left behind. The job
is held at all points from its start on, so that a kill always finds it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Job, wait_until
from elasticdl.ps.checkpoint.checkpoint_folders import versions

SIZE = 1437
EPOCHS = 2
# In the order in which a job comes to them. At the first two both workers are waited for.
PHASES = {"start": 2, "train": 2, "evaluate": 1, "epoch-0": 1, "epoch-1": 1}


def _node_of(job: Job, pid: int) -> str:
    return next(name for name, process in job.processes().items() if process.pid == pid)


@pytest.mark.parametrize("victim", ["worker", "ps", "master"])
def test_role_killed_in_every_phase_leaves_exact_audit(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path, victim: str
) -> None:
    """While it starts, in the middle of an epoch, while it is evaluated, between epochs, and at the end."""
    for phase in PHASES:
        gates.hold(phase)
    job = start_gated("--evaluation_steps=20", f"--output={tmp_path / 'model'}")
    for number, (phase, count) in enumerate(PHASES.items()):
        pids = gates.wait_for(phase, count)
        # Each kill of a server brings the next number.
        job.kill({"worker": _node_of(job, pids[0]), "ps": f"ps-{number}", "master": "master"}[victim])
        gates.release(phase)
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert {e["epoch"] for e in job.status()["evaluations"]} >= {0, 1}
    assert (tmp_path / "model" / "state_dict.pt").exists()
    # A replacement has the next number, and no process was restarted because another one died. The last one killed had
    # nothing left to do, so it may have none.
    started = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    kills = len(PHASES) if victim == "worker" else 0
    assert started in [{f"worker-{n}" for n in range(2 + k)} for k in (max(kills - 1, 0), kills)]


def test_worker_killed_around_checkpoints_leaves_exact_audit(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    """Checkpoints every second step: whenever it is, a kill is near one."""
    checkpoints = tmp_path / "checkpoints"
    # The job is not over before the last kill.
    gates.hold("epoch-1")
    job = start_gated(
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=2",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    last = 0
    for victim in ("worker-0", "master", "ps-0", "worker-1", "ps-1", "master", "worker-2"):
        wait_until(
            lambda before=last: _newest(checkpoints) != before or gates.passed("epoch-1"),
            "another checkpoint",
        )
        last = _newest(checkpoints)
        job.kill(victim)
    gates.release("epoch-1")
    job.assert_exact(epochs=EPOCHS, size=SIZE)


def _newest(checkpoints: Path) -> int:
    return max((step for step, _ in versions(checkpoints)), default=0)


# With a checkpoint at the end of each epoch, with some inside of it, and with a model that outlives its workers.
ALONE = ("--distribution_strategy=Local", "--num_workers=1", "--num_ps=0")
WHERE = {
    "local": ALONE,
    "checkpoints": (*ALONE, "--checkpoint_steps=10", "--checkpoint_dir={folder}/checkpoints"),
    "served": ("--num_ps=1", "--num_workers=1"),
}


@pytest.mark.parametrize("where", WHERE)
def test_the_only_worker_killed_and_its_learning_rate(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path, where: str
) -> None:
    """If the victim holds the model, the job rolls back to its last checkpoint. Each batch is trained with the rate of
    its epoch, on every worker: one that a schedule has set, and one that follows from the epochs before.
    """
    gates.hold("train-3")
    flags = [flag.format(folder=tmp_path) for flag in WHERE[where]]
    job = start_gated(*flags, "--callbacks=reducing_and_multiplying", "--num_epochs=5")
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
        for epoch, factor in enumerate([1, 1, 1 / 4, 1 / 16, 1 / 64])
    ]
    epochs = {
        json.loads(line)[0] for line in (gates.folder / "rates-worker-1.jsonl").read_text().splitlines()
    }
    assert epochs >= {3, 4}
