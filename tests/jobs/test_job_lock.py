"""A job runs as long as the process that runs it, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec

RUNNER = """
import sys
from pathlib import Path
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.job_store import JobStore
spec = JobSpec.build(job_name="one", job_command="x")
folder = JobStore(Path(sys.argv[1])).create(spec)
print("running", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs a job."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    yield process
    process.kill()
    process.wait()


def test_a_killed_runner_leaves_an_interrupted_job(runner: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = JobStore(tmp_path).get("one")
    assert folder.is_running()
    assert folder.state() == "running"
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    assert not folder.is_running()
    assert folder.state() == "interrupted"
    JobStore(tmp_path).delete("one")


def test_running_job_cannot_be_taken(runner: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = JobStore(tmp_path).get("one")
    with pytest.raises(UserError, match="running already"):
        folder.acquire()
    with pytest.raises(UserError, match="is running"):
        JobStore(tmp_path).delete("one")
    runner.communicate("")
    folder.acquire()
    assert folder.state() == "running"
    folder.release()


def test_looking_takes_nothing(tmp_path: Path, job: Callable[..., JobSpec]) -> None:
    folder = JobStore(tmp_path).create(job(job_name="one"))
    other = JobFolder(folder.path)
    assert other.is_running()
    folder.release()
    assert not other.is_running()
    folder.acquire()
    assert other.is_running()


def test_children_do_not_keep_a_job_running(tmp_path: Path, job: Callable[..., JobSpec]) -> None:
    folder = JobStore(tmp_path).create(job(job_name="one"))
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    folder.release()
    try:
        assert not folder.is_running()
    finally:
        child.communicate(b"\n")


def test_a_folder_without_a_lock(tmp_path: Path, job: Callable[..., JobSpec]) -> None:
    folder = JobStore(tmp_path).create(job(job_name="one"))
    folder.release()
    folder.lock_path.unlink()
    assert not folder.is_running()
