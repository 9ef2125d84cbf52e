"""Jobs that are stopped, killed, detached, run again: nothing is lost, and one audit is about all attempts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import Gates, Job, gated_arguments, wait_until
from e2e.terminal import Terminal
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore

SIZE = 1437
_SHARD_SIZE = 32 * 4
ELASTICDL = [sys.executable, "-m", "elasticdl.cli.main"]


class Machine:
    """Jobs of one ELASTICDL_HOME, started in terminals and by commands."""

    def __init__(self, home: Path, gates: Gates) -> None:
        self.store = JobStore(home)
        self.environment = {
            **os.environ,
            "ELASTICDL_HOME": str(home),
            "ELASTICDL_TEST_GATES": str(gates.folder),
            "ELASTICDL_THREADS": "1",
        }
        self.terminals: list[Terminal] = []

    def terminal(self, *arguments: str) -> Terminal:
        terminal = Terminal([*ELASTICDL, *arguments], environment=self.environment)
        self.terminals.append(terminal)
        return terminal

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ELASTICDL, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*ELASTICDL, *arguments], env=self.environment)

    def job(self, name: str) -> JobFolder:
        found = wait_until(lambda: self._find(name), f"there is a job {name}")
        assert isinstance(found, JobFolder)
        return found

    def _find(self, name: str) -> JobFolder | None:
        try:
            return self.store.get(name)
        except UserError:
            return None

    def wait_for(self, name: str, state: str) -> None:
        wait_until(lambda: self.job(name).state() == state, f"job {name} is {state}")

    def end(self) -> None:
        for terminal in self.terminals:
            terminal.close()
            terminal.process.wait()
        for folder in self.store.list():
            if folder.is_running():
                assert self.run("jobs", "stop", folder.name).returncode == 0


@pytest.fixture
def machine(tmp_path: Path, gates: Gates) -> Iterator[Machine]:
    machine = Machine(tmp_path / "home", gates)
    yield machine
    machine.end()


def audit_of(folder: JobFolder) -> Any:
    from elasticdl.catalog.local.master_client import last_status

    audit = last_status(folder).audit
    assert audit is not None
    assert audit.exact, audit.reason
    return audit


def host_of(folder: JobFolder) -> psutil.Process:
    """The process in the background that hosts the job."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "elasticdl.catalog.local.background_host" in words and str(folder.path) in words:
            return process
    raise AssertionError(f"no host of {folder.path}")


# -- resume --------------------------------------------------------------------------------------------------


def test_closed_terminal_saves_a_checkpoint_and_the_job_is_resumed(
    machine: Machine, gates: Gates, digits: Path
) -> None:
    """However often the hang-up is reported: by the kernel, by the shell."""
    machine.environment["ELASTICDL_TEST_SLOW"] = "0.01"
    terminal = machine.terminal(*gated_arguments(digits), "--num_epochs=3")
    gates.wait_for("train", 2)
    folder = machine.job("gated")
    wait_until(lambda: "samples" in terminal.output, "the panel is drawn")
    gates.hold("train")
    gates.wait_for_held("train")
    terminal.close()
    (command,) = [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if "--job_name=gated" in (process.info["cmdline"] or [])
        and process.info["cmdline"][0] == sys.executable
        and (process.info["environ"] or {}).get("ELASTICDL_HOME") == machine.environment["ELASTICDL_HOME"]
    ]
    command.send_signal(signal.SIGHUP)
    gates.release("train")
    machine.wait_for("gated", "stopped")
    assert list((folder.path / "checkpoints").glob("version-*"))
    assert "stopped" in machine.run("jobs", "status", "gated").stdout
    del machine.environment["ELASTICDL_TEST_SLOW"]

    resumed = machine.run("jobs", "resume", "gated")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    audit = audit_of(folder)
    assert [row.done for row in audit.rows if row.dataset == "training"] == [SIZE] * 3
    # What had been trained before the terminal was closed is in the checkpoint. Workers go on with their shards while
    # it is written: no more than that is trained again.
    assert sum(row.again for row in audit.rows) <= 2 * _SHARD_SIZE
    again = machine.run("jobs", "resume", "gated")
    assert (again.returncode, "it has succeeded" in again.stderr) == (2, True)


def test_job_killed_with_all_its_processes_is_resumed_exact(
    start_gated: Callable[..., Job], machine: Machine, gates: Gates, tmp_path: Path
) -> None:
    job = start_gated(
        "--checkpoint_steps=10",
        f"--checkpoint_dir={tmp_path / 'saved'}",
        "--num_epochs=4",
        environment={"ELASTICDL_TEST_SLOW": "0.05"},
    )
    wait_until(lambda: job.status().get("checkpoint"), "a checkpoint")
    gates.hold("train")
    gates.wait_for_held("train")
    processes = list(job.processes().values())
    job.process.kill()
    for process in processes:
        if process.is_running():
            process.kill()
    job.wait()
    job.assert_nothing_left()
    gates.release("train")
    asked = machine.run("jobs", "wait", "gated")
    assert asked.returncode == 1
    assert "elasticdl jobs resume gated" in asked.stderr
    resumed = machine.run("jobs", "resume", "gated")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    audit = audit_of(machine.job("gated"))
    assert [row.done for row in audit.rows if row.dataset == "training"] == [SIZE] * 4
    job.assert_nothing_left()


def test_failed_job_is_resumed_after_its_cause_is_removed(machine: Machine, tmp_path: Path) -> None:
    cause = tmp_path / "present"
    failed = machine.run(
        "train", f"--job_command=test -e {cause}", "--job_name=job", "--relaunch_on_worker_failure=0"
    )
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[-1] == "To continue job job: elasticdl jobs resume job"
    cause.touch()
    resumed = machine.run("jobs", "resume", "job", "--detach")
    assert resumed.returncode == 0, resumed.stderr
    assert machine.run("jobs", "wait", "job").returncode == 0
    assert machine.job("job").record().attempts == 2


# -- detach --------------------------------------------------------------------------------------------------


def test_detached_job_survives_its_terminal(machine: Machine, gates: Gates, digits: Path) -> None:
    gates.hold("train")
    terminal = machine.terminal(*gated_arguments(digits), "--num_epochs=1", "--detach")
    assert terminal.process.wait() == 0, terminal.output
    assert "Job gated runs in the background." in terminal.output
    assert "elasticdl jobs attach gated" in terminal.output
    folder = machine.job("gated")
    host = host_of(folder)
    assert os.getsid(host.pid) == host.pid
    assert host.terminal() is None
    gates.wait_for("train", 2)
    terminal.close()
    host.send_signal(signal.SIGHUP)

    timed_out = machine.run("jobs", "wait", "gated", "--timeout=0.5")
    assert timed_out.returncode == 124, timed_out.stderr
    watcher = machine.terminal("jobs", "attach", "gated")
    wait_until(lambda: "worker-1" in watcher.output, "the job is shown")
    shown = next(
        child for child in psutil.Process(watcher.process.pid).children() if "attach" in child.cmdline()
    )
    shown.send_signal(signal.SIGINT)
    assert watcher.process.wait() == 130
    assert "Detached: job gated goes on." in watcher.output
    assert folder.is_running()

    gates.release("train")
    assert machine.run("jobs", "attach", "gated").returncode == 0
    audit = audit_of(folder)
    assert [row.done for row in audit.rows if row.dataset == "training"] == [SIZE]
    wait_until(lambda: not host.is_running(), "the host has ended")


# -- run again -----------------------------------------------------------------------------------------------


def test_name_is_reused_and_a_running_job_is_replaced(machine: Machine) -> None:
    waits = ("train", "--job_name=job", "--job_command=echo first; exec sleep 1000")
    assert machine.run(*waits, "--detach").returncode == 0
    refused = machine.run("train", "--job_name=job", "--job_command=true")
    assert refused.returncode == 2
    assert "--replace" in refused.stderr
    replaced = machine.run("train", "--job_name=job", "--job_command=echo second", "--replace")
    assert replaced.returncode == 0, replaced.stderr
    assert machine.run("train", "--job_name=job", "--job_command=echo third").returncode == 0
    listed = machine.run("jobs", "list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in listed] == ["job", "job.2", "job.1"]
    assert [line.split()[2] for line in listed] == ["succeeded", "succeeded", "stopped"]
    for name, word in (("job.1", "first"), ("job.2", "second"), ("job", "third")):
        assert machine.run("jobs", "logs", name, "worker-0").stdout.splitlines()[0] == word
    assert machine.run("jobs", "delete", "job").returncode == 0
    assert machine.store.list() == ()
