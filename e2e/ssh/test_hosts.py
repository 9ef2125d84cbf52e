"""A job on two machines, each with an sshd and a network of its own: a worker is killed, then a machine is gone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import Job, gated_arguments, wait_until
from e2e.ssh.machines import Machines


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    machines = Machines(folder, ("first", "second"))
    yield machines
    machines.close()


def _placements(job: Job) -> dict[str, str]:
    lines = (job.folder / "hosts" / "placements.jsonl").read_text().splitlines()
    return {entry["node"]: entry["host"] for entry in map(json.loads, lines)}


def _replaced(job: Job) -> set[str]:
    """The roles that have a node on the first host which was placed after the second one was lost."""
    before = {"ps-0", "ps-1", "worker-0", "worker-1", "worker-2"}
    later = {node for node, host in _placements(job).items() if host == "first"} - before
    return {node.rpartition("-")[0] for node in later}


def _nodes(gates: Path) -> dict[str, int]:
    """The processes of the job's nodes, by name: all machines share this one's process ids."""
    found = {}
    for process in psutil.process_iter():
        try:
            environment, command = process.environ(), process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        node = environment.get("ELASTICDL_NODE")
        if node and environment.get("ELASTICDL_TEST_GATES") == str(gates) and "-m" in command:
            found[node] = process.pid
    return found


def test_worker_killed_and_host_lost_keeps_audit_exact(
    machines: Machines, gates: Any, digits: Path, tmp_path: Path
) -> None:
    gates.hold("train")
    (tmp_path / "home").mkdir()
    job = Job(
        tmp_path / "home",
        [
            *gated_arguments(digits),
            "--num_ps=2",
            "--hosts=first,second",
            f"--ssh_config={machines.ssh.config}",
            f"--envs=ELASTICDL_TEST_GATES={gates.folder},ELASTICDL_THREADS=1",
        ],
        {"ELASTICDL_TEST_GATES": str(gates.folder)},
        prefix=machines.submitter.prefix,
    )
    try:
        gates.wait_for("train", 2)
        assert sorted(_placements(job).items()) == [
            ("ps-0", "first"),
            ("ps-1", "second"),
            ("worker-0", "first"),
            ("worker-1", "second"),
        ]
        os.kill(_nodes(gates.folder)["worker-0"], signal.SIGKILL)
        gates.wait_for("train", 3)
        assert _placements(job)["worker-2"] == "first"

        machines.disconnect("second")
        # The failure detector may be the first to notice, and the host is then tried once more.
        wait_until(lambda: _replaced(job) == {"worker", "ps"}, "the nodes of the host are replaced")
        assert "Host second" in (job.folder / "logs" / "master.log").read_text()

        gates.release("train")
        job.assert_exact(epochs=2, size=1437)
        # The agent there hears nothing from its master any more.
        wait_until(lambda: not _nodes(gates.folder), "no node is left on either machine")
    finally:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
