"""A run of nodes as processes of this machine: what it refuses, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from elasticdl.cli.paddle import paddle
from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.data_job import DataJob
from elasticdl.paddle_compat.cluster.sources import Sizes

# Prints its number, and has a child that tells whether it outlives it.
_PARENT = """
import os, select, signal
from elasticdl.paddle_compat.cluster.node import let_forks_die

let_forks_die()
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)
    select.select([], [], [], 10)
    print("survived", flush=True)
else:
    print(os.getpid(), flush=True)
    signal.pause()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    DataJob(out_dir=folder, split_count=1, sizes=Sizes(reviews=60, ratings=60)).run()
    return folder


def refusal(job: Path, *words: str) -> str:
    flags = ["run", "--nodes=1", f"--job_path={job.parent}", f"--job_name={job.name}", *words]
    found = CliRunner().invoke(paddle, flags).exception
    assert isinstance(found, UserError), found
    return str(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--save_dir=/tmp",), "each node gets its own --save_dir"),
        (("--trainer_id=1",), "each node gets its own --trainer_id"),
        (("--num_gradient_servers=2",), "--nodes is the number of nodes"),
        (("--port=65000", "--ports_num=600"), "the last port is 65535"),
        (("--job=test",), "--job=test is not supported"),
        (("--local=1",), "--local=1 is for one trainer"),
        (("--nodes=2",), "SPLIT_COUNT=2"),
    ],
)
def test_flag_that_cannot_be_followed_is_refused(job: Path, words: tuple[str, ...], message: str) -> None:
    assert message in refusal(job, *words)
    assert not list((job / "output").iterdir())


def test_second_run_of_a_job_that_runs_is_refused(job: Path) -> None:
    opened = os.open(job, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        assert f"The job in {job} is running already" in refusal(job)
    finally:
        os.close(opened)


def test_process_that_is_forked_dies_with_a_killed_parent() -> None:
    """As the manager of Paddle's gloo, which would keep its port."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) == parent.pid
        parent.kill()
        assert parent.stdout.read() == ""
