"""Ctrl-C once saves and stops, twice kills; and whatever happens to the command, nothing is left running."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import wait_until


def test_one_interrupt_saves_a_checkpoint(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    job = start_gated(
        f"--checkpoint_dir={tmp_path / 'saved'}",
        "--num_epochs=10000",
        environment={"ELASTICDL_TEST_SLOW": "0.01"},
    )
    gates.wait_for("train", 2)
    wait_until(lambda: job.status().get("step", 0) > 0, "a step")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    job.assert_nothing_left()
    assert list((tmp_path / "saved").glob("version-*"))
    assert "stopped" in job.output


def test_two_interrupts_kill(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    job = start_gated()
    gates.wait_for("train", 2)
    job.process.send_signal(signal.SIGINT)
    wait_until(lambda: "Ctrl-C again kills" in job.output, "the first one is noticed")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 130
    job.assert_nothing_left()


def test_killed_command_leaves_no_process_of_training(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    job = start_gated()
    gates.wait_for("train", 2)
    job.process.kill()
    job.wait()
    job.assert_nothing_left()
    assert "interrupted" in job.command("jobs", "list").stdout


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_command_leaves_no_process_of_job_command(
    start_job: Callable[..., Any], signal_number: int
) -> None:
    """Nor what it has started itself."""
    job = start_job("train", "--job_command=echo begun; sleep 1000 | cat", "--job_name=sleeping")
    programs.wait_for_log(job, "worker-0", "begun")
    os.kill(job.process.pid, signal_number)
    job.wait()
    programs.assert_nothing_left(job)
    state = job.command("jobs", "list").stdout
    assert ("interrupted" if signal_number == signal.SIGKILL else "stopped") in state
