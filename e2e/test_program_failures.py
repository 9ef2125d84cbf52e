"""Faults of the program itself: reported with its own message, retried as often as configured, then fatal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIZE = 1437


def test_a_shard_that_keeps_failing_fails_the_job(start_gated: Callable[..., Any], gates: Any) -> None:
    (gates.folder / "fault").write_text("arithmetic")
    job = start_gated("--max_shard_retries=0", "--num_workers=1")
    assert job.wait() == 1
    assert "ArithmeticError: the program's own fault" in job.output
    # The traceback is the program's: its file, its function.
    assert "gated/model.py" in job.output
    assert "in loss" in job.output
    job.assert_nothing_left()


def test_a_worker_that_fails_is_retried(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("start")
    (gates.folder / "fault").write_text("arithmetic")
    job = start_gated("--num_workers=1", "--relaunch_on_worker_failure=5", "--max_shard_retries=5")
    gates.wait_for("start")
    gates.release("start")
    gates.wait_for("train", 2)
    (gates.folder / "fault").unlink()
    job.assert_exact(epochs=2, size=SIZE)


def test_out_of_memory_has_its_own_reason(start_gated: Callable[..., Any], gates: Any) -> None:
    (gates.folder / "fault").write_text("memory")
    job = start_gated("--num_workers=1", "--relaunch_on_worker_failure=0")
    assert job.wait() == 1
    assert "ran out of memory" in job.output


def test_a_stalled_worker_loses_its_shard(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    job = start_gated(
        "--stall_factor=5", "--stall_floor_seconds=5", environment={"ELASTICDL_TEST_SLOW": "0.01"}
    )
    gates.wait_for("train", 2)
    gates.hold("train-worker-0")
    gates.release("train")
    job.assert_exact(epochs=2, size=SIZE)
    assert "Killing worker-0: stalled for " in (job.folder / "logs" / "master.log").read_text()
