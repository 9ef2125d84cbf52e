"""Trainers that are cut off, replaced and come back: the master is real, and the processes are stopped by SIGSTOP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.errors import ShardError
from elasticai_api.paddle.fault_tolerance import FaultTolerantTrainer
from elasticdl.master.commands.recovery import FinishReclaim
from elasticdl.platforms.platform import NodePhase

SAMPLES = 50
TOTAL = float(sum(range(SAMPLES)))

# Trains as `train` does. Says which shard it has trained, and asks for the next one when it gets a line.
PROGRAM = """
import sys

from tests.elasticai_api.paddle.test_cut_off_trainers import make, train

trainer, model, optimizer = make(sys.argv[1])
for shard in trainer.shards():
    train(shard, model, optimizer)
    print(shard.start, shard.end, flush=True)
    sys.stdin.readline()
print("ended", float(model.weight), flush=True)
"""


def make(folder: Path | str) -> tuple[FaultTolerantTrainer, Any, Any]:
    """A model that sums up what it is trained on, in a worker of the job that the environment describes."""
    service = build_data_shard_service(
        batch_size=4, num_epochs=1, dataset_size=SAMPLES, num_minibatches_per_shard=3, dataset_name="d"
    )
    model = paddle.nn.Linear(1, 1, bias_attr=False)
    model.weight.set_value(np.zeros((1, 1), np.float32))
    optimizer = paddle.optimizer.SGD(1.0, model.parameters())
    return FaultTolerantTrainer(model, optimizer, service, folder), model, optimizer


def train(shard: Any, model: Any, optimizer: Any) -> None:
    for number in range(shard.start, shard.end):
        (-number * model.weight).sum().backward()
        optimizer.step()
        optimizer.clear_grad()


def learned(folder: Path) -> float:
    return float(paddle.load(str(folder / "state.pdstate"))["model"]["weight"])


@contextmanager
def process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Worker 0."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    found = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield found
    finally:
        found.kill()
        found.communicate()


def next_line(trainer: subprocess.Popen[str]) -> str:
    assert trainer.stdout is not None
    return trainer.stdout.readline().strip()


def proceed(trainer: subprocess.Popen[str]) -> str:
    assert trainer.stdin is not None
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    return next_line(trainer)


def freeze(trainer: subprocess.Popen[str]) -> None:
    trainer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, trainer.pid, os.WSTOPPED)


def replace_worker_0(job: Any) -> None:
    """As when its machine cannot be reached: the master takes it for dead, and the process may still be there."""
    job.observe("worker-0", NodePhase.FAILED, "killed")


@pytest.mark.parametrize("shards", [0, 2])
def test_trainer_frozen_until_its_shard_is_done_adds_nothing(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    folder = tmp_path / "model"
    with process(folder) as frozen:
        assert next_line(frozen) == "0 12"
        for _ in range(shards):
            proceed(frozen)
        freeze(frozen)
        replace_worker_0(job)
        monkeypatch.setenv("WORKER_ID", "1")
        trainer, model, optimizer = make(folder)
        for shard in trainer.shards():
            train(shard, model, optimizer)
        frozen.send_signal(signal.SIGCONT)
        assert proceed(frozen) == f"ended {TOTAL}"
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES


def test_trainer_that_comes_back_while_its_shard_is_trained_adds_nothing(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    with process(folder) as frozen:
        assert next_line(frozen) == "0 12"
        assert proceed(frozen) == "12 24"
        freeze(frozen)
        replace_worker_0(job)
        monkeypatch.setenv("WORKER_ID", "1")
        trainer, model, optimizer = make(folder)
        running = trainer.shards()
        shard = next(running)
        assert (shard.start, shard.end) == (12, 24)
        frozen.send_signal(signal.SIGCONT)
        # What it has learned of the shard is not in its own model either.
        assert proceed(frozen) == f"ended {float(sum(range(12)))}"
        train(shard, model, optimizer)
        for shard in running:
            train(shard, model, optimizer)
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES


def test_shard_lost_before_there_is_a_state_ends_the_trainer(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    first, model, optimizer = make(folder)
    running = first.shards()
    train(next(running), model, optimizer)
    replace_worker_0(job)
    monkeypatch.setenv("WORKER_ID", "1")
    second, other, its_optimizer = make(folder)
    taken_over = second.shards()
    shard = next(taken_over)
    with pytest.raises(ShardError, match=r"samples \[0, 12\) of d, epoch 1, were leased to another"):
        next(running)
    train(shard, other, its_optimizer)
    for shard in taken_over:
        train(shard, other, its_optimizer)
    assert learned(folder) == TOTAL


def test_trainer_frozen_right_after_fetching_does_not_train_what_another_has_done(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    late, model, optimizer = make(folder)
    fetch = late._service.get_task

    def fetch_and_freeze() -> Any:
        task = fetch()
        if task.task_id == 1:
            replace_worker_0(job)
            monkeypatch.setenv("WORKER_ID", "1")
            trainer, other, its_optimizer = make(folder)
            for shard in trainer.shards():
                train(shard, other, its_optimizer)
        return task

    monkeypatch.setattr(late._service, "get_task", fetch_and_freeze)
    for shard in late.shards():
        train(shard, model, optimizer)
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES


def test_trainer_cut_off_before_its_report_is_in_the_state_once(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    first, model, optimizer = make(folder)
    report = first._service.report_batch_done

    def replaced_meanwhile(*arguments: Any, **keywords: Any) -> bool:
        if job.done("d") == 0:
            replace_worker_0(job)
            monkeypatch.setenv("WORKER_ID", "1")
            trainer, other, its_optimizer = make(folder)
            for shard in trainer.shards():
                assert shard.start >= 12
                train(shard, other, its_optimizer)
        return report(*arguments, **keywords)

    monkeypatch.setattr(first._service, "report_batch_done", replaced_meanwhile)
    for shard in first.shards():
        train(shard, model, optimizer)
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES


def lose_leases(job: Any) -> None:
    """The master loses its journal, and its workers stay away until the recovery is over."""
    kept = job.do(lambda master: master.record())
    job.stop()
    job.kept = kept
    job.start()
    job.do(lambda master: master.do(FinishReclaim()))
    assert job.held_by("worker-0") == []


def test_trainer_that_loses_its_lease_before_its_report_does_not_train_the_shard_again(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    trainer, model, optimizer = make(folder)
    report = trainer._service.report_batch_done

    def report_late(*arguments: Any, **keywords: Any) -> bool:
        if job.done("d") == 12 and job.held_by("worker-0")[0] == (12, 24):
            lose_leases(job)
        return report(*arguments, **keywords)

    monkeypatch.setattr(trainer._service, "report_batch_done", report_late)
    starts = []
    for shard in trainer.shards():
        starts.append(shard.start)
        train(shard, model, optimizer)
    assert starts == [0, 12, 24, 36, 48]
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES


def test_shard_of_a_lost_lease_stays_in_the_state_for_the_next_trainer(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    first, model, optimizer = make(folder)
    monkeypatch.setenv("WORKER_ID", "1")
    second, other, its_optimizer = make(folder)
    report, fetch = first._service.report_batch_done, second._service.get_task
    fetched: list[Any] = []

    def report_late(*arguments: Any, **keywords: Any) -> bool:
        if not fetched:
            lose_leases(job)
            fetched.append(fetch())
        return report(*arguments, **keywords)

    monkeypatch.setattr(first._service, "report_batch_done", report_late)
    monkeypatch.setattr(second._service, "get_task", lambda: fetched.pop() if fetched else fetch())
    running = first.shards()
    for _ in range(3):
        train(next(running), model, optimizer)
    # It has written the state again, after it lost the lease, and is replaced with its third shard in hand.
    replace_worker_0(job)
    assert (fetched[0].shard.start, fetched[0].shard.end) == (0, 12)
    for shard in second.shards():
        train(shard, other, its_optimizer)
    assert learned(folder) == TOTAL
    assert job.done("d") == SAMPLES
