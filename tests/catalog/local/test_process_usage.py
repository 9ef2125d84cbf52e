"""What the nodes of a local job use, measured of real processes; GPUs as a program in place of nvidia-smi tells it."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.catalog.local.gpu_usage import GpuProcess, gpu_processes
from elasticdl.catalog.local.process_usage import ProcessUsage
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest

MIB = 1024 * 1024
# A shell whose child computes for as long as it takes to be seen, and then sleeps.
BUSY = f"""
import os, subprocess, sys, time
if len(sys.argv) == 2:
    memory = bytearray({64 * MIB})
    while time.process_time() < 0.5:
        pass
    open(sys.argv[1], "w").close()
    time.sleep(600)
else:
    subprocess.run([sys.executable, "-c", os.environ["PROGRAM"], os.environ["DONE"]])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    made = JobStore(tmp_path / "home").create(JobSpec.build(job_name="busy", job_command="x"))
    yield made
    made.release()


@pytest.fixture
def host(folder: JobFolder) -> Iterator[Host]:
    with Host(folder.socket_path(), folder.logs_path, os.environ) as running:
        yield running


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_use_of_a_node_is_that_of_its_descendants_too(host: Host, folder: JobFolder, tmp_path: Path) -> None:
    done = tmp_path / "done"
    command = (sys.executable, "-c", BUSY)
    host.spawn(NodeRequest(name="idle", role="worker", command=("sleep", "600")))
    usage = ProcessUsage(folder)
    assert set(usage.read()) == {"idle"}
    environment = {"PROGRAM": BUSY, "DONE": str(done)}
    host.spawn(NodeRequest(name="busy", role="worker", command=command, environment=environment))
    wait_until(lambda: "busy" in usage.read())
    # The processor time of the child, which began after that, is between the two reads.
    wait_until(done.exists)
    found = usage.read()
    assert (found["busy"].cpu_cores or 0) > 0
    assert (found["busy"].memory_bytes or 0) > 64 * MIB
    assert found["idle"].cpu_cores == 0
    assert 0 < (found["idle"].memory_bytes or 0) < 64 * MIB
    assert found["idle"].gpu_memory_bytes is None


def test_usage_of_finished_job_is_empty(folder: JobFolder) -> None:
    usage = ProcessUsage(folder)
    assert usage.read() == {}
    folder.release()
    assert usage.read() == {}


def _nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, *, apps: str) -> None:
    """A program of that name, first on the path, that answers both questions."""
    program = folder / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *query-gpu*) printf "GPU-a, 83\\nGPU-b, [N/A]\\n";; *) printf "{apps}";; esac\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_gpus_are_those_of_the_processes_of_a_node(
    host: Host, folder: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.spawn(NodeRequest(name="worker-0", role="worker", command=("sleep", "600")))
    pid = host.pid("worker-0")
    _nvidia_smi(tmp_path, monkeypatch, apps=f"{pid}, GPU-a, 512\\n{pid}, GPU-b, 8\\n999999, GPU-a, 64\\n")
    found = ProcessUsage(folder).read()["worker-0"]
    assert found.gpu_memory_bytes == 520 * MIB
    assert found.gpu_utilization == 0.83


def test_answers_of_nvidia_smi_that_are_none_count_as_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nvidia_smi(tmp_path, monkeypatch, apps="No running processes found\\n7, GPU-a, [N/A]\\n8, GPU-a, 1\\n")
    assert gpu_processes() == {8: [GpuProcess(memory_bytes=MIB, utilization=0.83)]}
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert gpu_processes() == {}
