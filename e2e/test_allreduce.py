"""Jobs that train by all-reduce: workers come and go, and the training is the same as if they had not."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import Job, wait_until

SIZE = 1437
EPOCHS = 2
_LOSS = re.compile(r"Loss\[step=(\d+)\]: ([0-9.]+)")
_UNNAMED = "_EDL_DEFAULT_TRAINING_DATA"
_ROUND = re.compile(r"Round (\d+): (\d+) of (\d+), at step (\d+)")


@pytest.fixture
def start_team(start_job: Callable[..., Job], digits: Path) -> Callable[..., Job]:
    def start(*arguments: str, **more: Any) -> Job:
        return start_job(
            "train",
            "--model_zoo=e2e/zoo",
            "--model_def=gated.model.custom_model",
            f"--training_data={digits}/train",
            f"--validation_data={digits}/test",
            "--job_name=team",
            "--minibatch_size=16",
            f"--num_epochs={EPOCHS}",
            "--num_workers=3",
            "--distribution_strategy=AllreduceStrategy",
            "--log_loss_steps=1",
            *arguments,
            **more,
        )

    return start


def _losses(job: Job) -> dict[int, float]:
    """By step. All workers that made a step must tell the same loss of it."""
    found: dict[int, float] = {}
    for log in (job.folder / "logs").glob("worker-*.log"):
        for step, loss in _LOSS.findall(log.read_text()):
            assert found.setdefault(int(step), float(loss)) == pytest.approx(float(loss), abs=1e-5)
    return found


def _rounds(job: Job, worker: str) -> list[tuple[int, int]]:
    """The sizes of the rounds that a worker was in, and the steps at which they began."""
    log = job.folder / "logs" / f"{worker}.log"
    text = log.read_text() if log.exists() else ""
    return [(int(size), int(step)) for _, _, size, step in _ROUND.findall(text)]


def _members(job: Job) -> list[str]:
    """Of the newest round, the oldest first."""
    log = programs.log(job, "master")
    found: list[str] = re.findall(r"Round \d+: (.*)\.", log)
    return found[-1].split(", ") if found else []


def _until(job: Job, condition: Callable[[], Any], what: str) -> None:
    """As `wait_until`, but not beyond the end of the job."""
    wait_until(lambda: condition() or job.process.poll() is not None, what)
    assert condition(), f"the job ended before: {what}"


def test_the_loss_curve_is_that_of_one_process(
    start_team: Callable[..., Job], start_job: Callable[..., Job], gates: Any, digits: Path
) -> None:
    """Three workers, one of which is killed while the others wait for it in the middle of a step."""
    alone = start_job(
        "train",
        "--model_zoo=e2e/zoo",
        "--model_def=gated.model.custom_model",
        f"--training_data={digits}/train",
        "--job_name=alone",
        "--minibatch_size=48",
        f"--num_epochs={EPOCHS}",
        "--shuffle=false",
        "--log_loss_steps=1",
    )
    alone.assert_exact(epochs=EPOCHS, size=SIZE)
    job = start_team("--shuffle=false", environment={"ELASTICDL_TEST_SLOW": "0.02"})
    _until(job, lambda: any(size == 3 for size, _ in _rounds(job, "worker-1")), "all three train")
    gates.hold("train-worker-1")
    before = len(_losses(job))
    job.kill("worker-1")
    gates.release("train-worker-1")
    _until(job, lambda: _rounds(job, "worker-0")[-1][0] == 2, "the others go on")
    gates.hold("train")
    _until(job, lambda: "worker-3" in _members(job), "its replacement is ready")
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    expected, found = _losses(alone), _losses(job)
    assert len(expected) == EPOCHS * 30
    assert 0 < before < len(expected)
    assert found == pytest.approx(expected, abs=2e-4)
    assert not any(row["again"] for row in job.audit()["rows"])
    names = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    assert names == {"worker-0", "worker-1", "worker-2", "worker-3"}


@pytest.mark.parametrize("victim", ["first", "worker", "master"])
@pytest.mark.parametrize("phase", ["train", "evaluate", "epoch-0"])
def test_killed(start_team: Callable[..., Job], gates: Any, victim: str, phase: str) -> None:
    job = start_team("--evaluation_steps=20", environment={"ELASTICDL_TEST_SLOW": "0.01"})
    _until(job, lambda: any(size == 3 for size, _ in _rounds(job, "worker-0")), "all three train")
    gates.hold(phase)
    gates.wait_for(phase)
    first, other, _ = _members(job)
    job.kill({"first": first, "worker": other, "master": "master"}[victim])
    gates.release(phase)
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert not any(row["again"] for row in job.audit()["rows"])
    assert {e["epoch"] for e in job.status()["evaluations"]} >= {0, 1}


def test_the_loss_curve_outlives_many_kills(start_team: Callable[..., Job], tmp_path: Path) -> None:
    """Workers and the master, at any moment, also all workers in a row: steps that are trained again are the same."""
    flags = ("--num_epochs=4", "--evaluation_steps=30", "--checkpoint_steps=17")
    calm = start_team(*flags, f"--checkpoint_dir={tmp_path}/calm", "--job_name=calm")
    calm.assert_exact(epochs=4, size=SIZE)
    job = start_team(
        *flags, f"--checkpoint_dir={tmp_path}/checkpoints", environment={"ELASTICDL_TEST_SLOW": "0.05"}
    )
    chance = random.Random(0)
    for _ in range(8):
        pause = time.monotonic() + chance.uniform(0.5, 5.0)
        _until(
            job, lambda end=pause: time.monotonic() > end and len(job.processes()) > 1, "something to kill"
        )
        node = chance.choice(sorted(set(job.processes()) - ({"master"} if chance.random() < 0.6 else set())))
        job.kill(node)
    job.assert_exact(epochs=4, size=SIZE)
    assert _losses(job) == pytest.approx(_losses(calm), abs=1e-4)


def test_all_workers_killed(start_team: Callable[..., Job], tmp_path: Path) -> None:
    """The model is gone with them: the job goes back to its checkpoint."""
    checkpoints = tmp_path / "checkpoints"
    job = start_team(
        f"--checkpoint_dir={checkpoints}",
        "--checkpoint_steps=5",
        environment={"ELASTICDL_TEST_SLOW": "0.02"},
    )
    _until(job, lambda: list(checkpoints.glob("version-*")), "a checkpoint")
    for node in ("worker-0", "worker-1", "worker-2"):
        job.kill(node)
    job.assert_exact(epochs=EPOCHS, size=SIZE)


def test_growing_and_shrinking(start_team: Callable[..., Job], gates: Any, tmp_path: Path) -> None:
    job = start_team(
        f"--output={tmp_path}/out", "--num_epochs=3", environment={"ELASTICDL_TEST_SLOW": "0.02"}
    )
    _until(job, lambda: any(size == 3 for size, _ in _rounds(job, "worker-0")), "all three train")
    assert job.command("jobs", "scale", "team", "--num_workers=1").returncode == 0
    _until(job, lambda: _rounds(job, "worker-0")[-1][0] == 1, "worker-0 trains alone")
    gates.hold("train")
    assert job.command("jobs", "scale", "team", "--num_workers=3").returncode == 0
    _until(job, lambda: len(_members(job)) == 3, "two have come")
    gates.release("train")
    _until(job, lambda: _rounds(job, "worker-0")[-1][0] == 3, "they train")
    job.assert_exact(epochs=3, size=SIZE)
    assert not any(row["again"] for row in job.audit()["rows"])
    assert (tmp_path / "out" / "state_dict.pt").exists()


def test_a_loop_of_ones_own(start_job: Callable[..., Job], gates: Any, tmp_path: Path) -> None:
    """Three workers, one of which is killed; sent away until one is left; three again. The losses of all steps are
    those of a job that is left alone, and nobody was restarted.
    """
    loop = "model_zoo.digits.allreduce_loop --num_epochs=3"

    def start(name: str, module: str) -> Job:
        return start_job(
            "train",
            f"--job_command={sys.executable} -m {module}",
            "--num_workers=3",
            "--distribution_strategy=AllreduceStrategy",
            f"--job_name={name}",
        )

    calm = start("calm", loop)
    _hold(gates, 0)
    job = start("loop", f"e2e.gated_loop {loop} --output={tmp_path}/model.pt")
    _until(job, lambda: len(_members(job)) == 3, "three are ready")
    _hold(gates, 5)
    _wait_held(job, gates, 5, "worker-0", "worker-1", "worker-2")
    before = programs.pid_of(job, "worker-0")
    programs.kill(job, "worker-1")
    _until(job, lambda: "worker-3" in _members(job), "one takes its place")
    _hold(gates, 10)
    _wait_held(job, gates, 10, *_members(job))
    assert job.command("jobs", "scale", "loop", "--num_workers=1").returncode == 0
    _until(job, lambda: _members(job) == ["worker-0"], "the others are gone")
    _hold(gates, 20)
    _wait_held(job, gates, 20, "worker-0")
    assert job.command("jobs", "scale", "loop", "--num_workers=3").returncode == 0
    _until(job, lambda: len(_members(job)) == 3, "two have come")
    _hold(gates, 30)
    _wait_held(job, gates, 30, *_members(job))
    assert programs.pid_of(job, "worker-0") == before
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset=_UNNAMED, epochs=3, size=1797)
    assert calm.wait() == 0, calm.output
    assert not any(row["again"] for row in job.audit()["rows"])
    assert (tmp_path / "model.pt").exists()
    # One for the killed, two for those who were sent away.
    assert programs.nodes(job, "worker") == {f"worker-{number}" for number in range(6)}
    expected, found = _printed(calm), _printed(job)
    # 57 batches an epoch, three a step, whoever is there.
    assert sorted(expected) == list(range(1, 3 * 19 + 1))
    assert found == pytest.approx(expected, rel=1e-3)


def _hold(gates: Any, step: int) -> None:
    """From now on processes under `e2e.gated_loop` stay where they have made so many steps."""
    (gates.folder / "new").write_text(str(step))
    (gates.folder / "new").rename(gates.folder / "hold")


def _wait_held(job: Job, gates: Any, step: int, *nodes: str) -> None:
    files = [gates.folder / f"held-{step}-{node}" for node in nodes]
    _until(job, lambda: all(file.exists() for file in files), f"{nodes} come to step {step}")


def _printed(job: Job) -> dict[int, float]:
    text = "".join(path.read_text() for path in (job.folder / "logs").glob("worker-*.log"))
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([0-9.]+)", text)}


@pytest.mark.parametrize("hang", ["stuck", "stopped"])
def test_a_member_that_hangs(start_team: Callable[..., Job], gates: Any, hang: str) -> None:
    """It is stuck in its step; or it is stopped from outside, and another is killed, so that the next round has to
    begin with one who does not come. The others go on without it, and it is replaced.
    """
    gates.hold("train")
    # The hold counts as a part of the first step: little of it is to count as usual.
    job = start_team("--stall_floor_seconds=10", "--stall_factor=0.1")
    _until(job, lambda: len(_members(job)) == 3, "all are ready")
    _, other, last = _members(job)
    if hang == "stuck":
        gates.hold(f"train-{last}")
    else:
        job.processes()[last].send_signal(signal.SIGSTOP)
        job.kill(other)
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert f"{last} makes the others wait: it is ended, and they go on without it." in programs.log(
        job, "master"
    )
    assert not any(row["again"] for row in job.audit()["rows"])
    assert "worker-3" in programs.nodes(job, "worker")


def test_keras_is_told_to_go_elsewhere(start_job: Callable[..., Job], digits: Path) -> None:
    job = start_job(
        "train",
        "--model_zoo=model_zoo",
        "--model_def=digits.keras_cnn.custom_model",
        f"--training_data={digits}/train",
        "--job_name=keras",
        "--num_workers=2",
        "--distribution_strategy=AllreduceStrategy",
    )
    assert job.wait() == 1
    assert "AllreduceStrategy is for models in PyTorch" in job.output
