"""Jobs that run a program of the user's own, as the tests see them: their processes, logs and account."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil

from e2e.conftest import Job, wait_until
from elasticdl.catalog.local.process_ids import node_process_ids
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore


def processes(job: Job) -> list[psutil.Process]:
    """Everything that was started for the job: the master, and the user's command with what it started itself."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        token, folder = environment.get("ELASTICDL_TOKEN_FILE"), environment.get("ELASTICDL_JOB_DIR")
        if token == str(job.folder / "token") or folder == str(job.folder):
            found.append(process)
    return found


def pid_of(job: Job, node: str) -> int:
    """What `elasticdl jobs pid` prints, without a process for it."""

    def asked() -> int:
        try:
            return node_process_ids(JobStore(job.folder.parent.parent).get(job.name)).get(node, 0)
        except UserError:
            return 0

    return int(wait_until(asked, f"{node} runs"))


def kill(job: Job, node: str) -> None:
    os.kill(pid_of(job, node), signal.SIGKILL)


def log(job: Job, node: str) -> str:
    path = job.folder / "logs" / f"{node}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def wait_for_log(job: Job, node: str, words: str) -> None:
    def said() -> bool:
        assert job.process.poll() is None or words in log(job, node), (
            f"ended before:\n{job.output}\n{job.logs()}"
        )
        return words in log(job, node)

    wait_until(said, f"{node} says {words!r}")


def nodes(job: Job, role: str) -> set[str]:
    """All nodes of a role that there ever were."""
    return {path.stem for path in (job.folder / "logs").glob(f"{role}-*.log")}


def assert_exact(job: Job, *, dataset: str, epochs: int, size: int) -> None:
    """The job succeeded, every sample of every epoch was done, and nothing of it is left."""
    code = job.wait()
    assert code == 0, f"exit code {code}\n{job.output}\n{job.logs()}"
    audit = job.audit()
    assert audit["exact"], audit["reason"]
    done = [row["done"] for row in audit["rows"] if row["dataset"] == dataset]
    assert done == [size] * epochs, job.output
    assert_nothing_left(job)


def assert_nothing_left(job: Job) -> None:
    wait_until(lambda: not processes(job), "all processes of the job are gone")


def environment_of(gates: Path, node: str) -> dict[str, Any]:
    """What a process under `e2e.gated_program` was given."""
    path = gates / f"environment-{node}"
    wait_until(path.exists, f"{node} begins")
    given: dict[str, Any] = json.loads(path.read_text())
    given["TF_CONFIG"] = json.loads(given.get("TF_CONFIG", "{}"))
    return given
