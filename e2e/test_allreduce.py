"""Jobs that train by all-reduce: workers come and go, and the training is the same as if they had not."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

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
            # Who is held for long here does not hang.
            "--stall_factor=0",
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


def _until(job: Job, condition: Callable[..., Any], what: str) -> None:
    """As `wait_until`, but not beyond the end of the job."""
    wait_until(lambda: condition() or job.process.poll() is not None, what)
    assert condition(), f"the job ended before: {what}"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> dict[int, float]:
    """The losses of four epochs in one process, by step."""
    folder = tmp_path_factory.mktemp("alone")
    arguments = [
        "train",
        "--model_zoo=e2e/zoo",
        "--model_def=gated.model.custom_model",
        f"--training_data={digits}/train",
        "--job_name=alone",
        "--minibatch_size=48",
        "--num_epochs=4",
        "--shuffle=false",
        "--log_loss_steps=1",
    ]
    job = Job(folder, arguments, {"ELASTICDL_TEST_GATES": str(folder), "ELASTICDL_THREADS": "1"})
    job.assert_exact(epochs=4, size=SIZE)
    losses = _losses(job)
    assert len(losses) == 4 * 30
    return losses


def test_the_loss_curve_is_that_of_one_process(
    start_team: Callable[..., Job], alone: dict[int, float], gates: Any
) -> None:
    """Three workers, one of which is killed while the others wait for it in the middle of a step."""
    # It is not beyond the first epoch before all three train.
    gates.hold("epoch-0")
    job = _start_together(start_team, gates, "--shuffle=false")
    gates.hold("train-worker-1")
    gates.release("epoch-0")
    gates.wait_for_held("train", "worker-1")
    job.kill("worker-1")
    gates.release("train-worker-1")
    _until(job, lambda: _rounds(job, "worker-0")[-1][0] == 2, "the others go on")
    gates.hold("train")
    _until(job, lambda: "worker-3" in _members(job), "its replacement is ready")
    gates.release("train")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    expected = {step: alone[step] for step in range(1, EPOCHS * 30 + 1)}
    assert _losses(job) == pytest.approx(expected, abs=2e-4)
    assert not any(row["again"] for row in job.audit()["rows"])
    names = {path.stem for path in (job.folder / "logs").glob("worker-*.log")}
    assert names == {"worker-0", "worker-1", "worker-2", "worker-3"}


def _start_together(start_team: Callable[..., Job], gates: Any, *arguments: str, **more: Any) -> Job:
    """Until all three train in one round."""
    gates.hold("train")
    job = start_team(*arguments, **more)
    _until(job, lambda: len(_members(job)) == 3, "all three are there")
    gates.release("train")
    _until(job, lambda: (_rounds(job, "worker-0") or [(0, 0)])[-1][0] == 3, "all three train")
    return job


@pytest.mark.parametrize("victim", ["first", "worker", "master"])
def test_member_killed_in_every_phase_is_replaced(
    start_team: Callable[..., Job], gates: Any, victim: str
) -> None:
    """While the model is evaluated, in the middle of a step, and between two epochs."""
    for phase in ("evaluate", "epoch-0"):
        gates.hold(phase)
    # Slowly enough that the evaluation does not come with the end of the epoch, however late steps are reported to the
    # master.
    job = _start_together(
        start_team, gates, "--evaluation_steps=3", environment={"ELASTICDL_TEST_SLOW": "0.05"}
    )

    killed: set[str] = set()

    def kill() -> None:
        # Those that were killed before have been replaced.
        _until(job, lambda: len(set(_members(job)) - killed) == 3, "all three are there")
        first, other, _ = _members(job)
        name = {"first": first, "worker": other, "master": "master"}[victim]
        job.kill(name)
        killed.add(name)

    gates.wait_for("evaluate")
    kill()
    gates.hold("train")
    gates.release("evaluate")
    gates.wait_for_held("train")
    kill()
    gates.release("train")
    gates.wait_for("epoch-0")
    kill()
    gates.release("epoch-0")
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert not any(row["again"] for row in job.audit()["rows"])
    assert {e["epoch"] for e in job.status()["evaluations"]} >= {0, 1}


def test_the_loss_curve_outlives_many_kills(
    start_team: Callable[..., Job], alone: dict[int, float], gates: Any, tmp_path: Path
) -> None:
    """Workers and the master, at any moment, and then all workers at once: steps that are trained again are the same.
    With all workers the model is gone: the job goes back to its checkpoint.
    """
    # The job is not over before the last kill.
    gates.hold("epoch-3")
    job = start_team(
        "--shuffle=false",
        "--num_epochs=4",
        "--evaluation_steps=30",
        f"--checkpoint_dir={tmp_path}/checkpoints",
        "--checkpoint_steps=17",
        environment={"ELASTICDL_TEST_SLOW": "0.02"},
    )
    chance = random.Random(0)
    for _ in range(6):
        # A random moment, without a clock.
        wanted = (job.status().get("step") or 0) + chance.randrange(1, 18)
        _until(
            job,
            lambda step=wanted: (job.status().get("step") or 0) >= step or gates.passed("epoch-3"),
            "some more steps",
        )
        alive = wait_until(lambda: found if len(found := job.processes()) > 1 else None, "something to kill")
        node = chance.choice(sorted(set(alive) - ({"master"} if chance.random() < 0.6 else set())))
        _end(alive[node])
    alive = wait_until(lambda: found if (found := _workers(job)) else None, "workers run")
    for process in alive.values():
        _end(process)
    gates.release("epoch-3")
    job.assert_exact(epochs=4, size=SIZE)
    assert _losses(job) == pytest.approx(alone, abs=2e-4)


def _workers(job: Job) -> dict[str, psutil.Process]:
    return {name: process for name, process in job.processes().items() if name != "master"}


def _end(process: psutil.Process) -> None:
    """Kills it, if nothing else has meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def test_team_is_scaled_up_and_down(start_team: Callable[..., Job], gates: Any, tmp_path: Path) -> None:
    # All train in the first epoch, worker-0 alone in the second, and all again in the third.
    gates.hold("epoch-0")
    gates.hold("epoch-1")
    job = _start_together(start_team, gates, f"--output={tmp_path}/out", "--num_epochs=3")
    assert job.command("jobs", "scale", "team", "--num_workers=1").returncode == 0
    gates.release("epoch-0")
    _until(job, lambda: _rounds(job, "worker-0")[-1][0] == 1, "worker-0 trains alone")
    assert job.command("jobs", "scale", "team", "--num_workers=3").returncode == 0
    _until(job, lambda: len(_members(job)) == 3, "two have come")
    gates.release("epoch-1")
    job.assert_exact(epochs=3, size=SIZE)
    assert _rounds(job, "worker-0")[-1][0] == 3
    assert not any(row["again"] for row in job.audit()["rows"])
    assert (tmp_path / "out" / "state_dict.pt").exists()


def test_own_training_loop_survives_kills(start_job: Callable[..., Job], gates: Any, tmp_path: Path) -> None:
    """Three workers, one of which is killed; scaled down until one is left; three again. The losses of all steps are
    those of an undisturbed job, and no worker was restarted.
    """

    def start(name: str, folder: Path) -> Job:
        loop = f"model_zoo.digits.allreduce_loop --num_epochs=3 --output={tmp_path}/{name}.pt"
        return start_job(
            "train",
            f"--job_command={sys.executable} -m e2e.gated_loop {loop}",
            "--num_workers=3",
            "--distribution_strategy=AllreduceStrategy",
            f"--job_name={name}",
            environment={"ELASTICDL_TEST_GATES": str(folder)},
        )

    # Nothing holds it in this folder.
    calm = start("calm", tmp_path)
    _hold(gates, 0)
    job = start("loop", gates.folder)
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
    # One more than a step has batches: it is on standby, never gets the model, and must not save the one it began with.
    assert job.command("jobs", "scale", "loop", "--num_workers=4").returncode == 0
    _until(job, lambda: programs.pid_of(job, "worker-6"), "one is on standby")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset=_UNNAMED, epochs=3, size=1797)
    assert calm.wait() == 0, calm.output
    assert not any(row["again"] for row in job.audit()["rows"])
    trained, expected_model = (torch.load(tmp_path / f"{name}.pt") for name in ("loop", "calm"))
    for name, tensor in expected_model.items():
        torch.testing.assert_close(trained[name], tensor, rtol=1e-2, atol=1e-3)
    # One for the killed, two for the drained ones, one more than at the start.
    assert programs.nodes(job, "worker") == {f"worker-{number}" for number in range(7)}
    expected, found = _printed(calm), _printed(job)
    # 57 batches an epoch, three a step, with any number of members.
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
    assert f"Killing {last}: straggler, no progress for " in programs.log(job, "master")
    assert not any(row["again"] for row in job.audit()["rows"])
    assert "worker-3" in programs.nodes(job, "worker")


def test_keras_model_is_refused_with_the_right_strategy(start_job: Callable[..., Job], digits: Path) -> None:
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
