"""Disk, memory, ports, limits and permissions: each made to fail where it can be, by mounts, namespaces and limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.doctor.finding import Level
from elasticdl.doctor.machine_checks import (
    check_disk,
    check_home,
    check_limits,
    check_memory,
    check_ports,
    check_shared_memory,
    check_system,
)

ROOT = Path(__file__).parents[2]
# Prints the findings of one check.
PROGRAM = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from elasticdl.doctor import machine_checks
found = getattr(machine_checks, sys.argv[1])(*map(Path, sys.argv[2:]))
print(json.dumps([asdict(one) for one in (found if isinstance(found, list) else [found])]))
"""


def within(setup: str, check: str, *paths: Path) -> list[dict[str, Any]]:
    """Returns the findings of a check in a process whose machine has been changed by a few lines of shell."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "namespaces of its own are made with unshare (util-linux)"
    done = subprocess.run(
        [
            *(unshare, "--map-root-user", "--net", "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh"),
            *(sys.executable, "-c", PROGRAM, check, *map(str, paths)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_this_machine_is_well(tmp_path: Path) -> None:
    found = [*check_home(tmp_path / "home"), *check_ports(), check_limits(), check_shared_memory()]
    assert {one.level for one in found} <= {Level.OK, Level.WARNING}
    assert not (tmp_path / "home").exists()


def test_home_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (finding,) = within(f'mount -t tmpfs -o ro tmpfs "{tmp_path}"', "check_home", tmp_path / "home")
    assert finding["level"] == "error"
    assert finding["text"] == f"{tmp_path / 'home'} cannot be written: Read-only file system."
    assert "chmod -R u+rwX" in finding["fix"]


def test_full_disk_is_an_error(tmp_path: Path) -> None:
    _, disk = within(f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}"', "check_home", tmp_path)
    assert (disk["subject"], disk["level"]) == ("disk", "error")
    assert disk["text"] == f"1 MiB free in {tmp_path}"
    assert "elasticdl jobs delete --older_than=7d" in disk["fix"]


def test_disk_with_little_room_is_a_warning(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    assert check_disk(tmp_path, enough=2 * free, least=free // 2).level is Level.WARNING


def test_jobs_that_others_may_read_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o755)
    (tmp_path / "jobs").chmod(0o755)
    finding, _ = check_home(tmp_path)
    assert finding.level is Level.WARNING
    assert finding.fix == f'chmod 700 "{tmp_path / "jobs"}"'


def test_small_shared_memory_is_a_warning(tmp_path: Path) -> None:
    (finding,) = within(f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}"', "check_shared_memory", tmp_path)
    assert finding["level"] == "warning"
    assert "docker run --shm-size=1g" in finding["fix"]
    assert check_shared_memory(tmp_path / "none").level is Level.ABSENT


def test_no_free_port_is_an_error() -> None:
    narrow = 'echo "40000 40000" > /proc/sys/net/ipv4/ip_local_port_range'
    finding, *_ = within(narrow, "check_ports")
    assert finding["level"] == "error"
    assert "No port of this machine is free" in finding["text"]
    assert "ss -tanp" in finding["fix"]


def test_folder_without_sockets_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    *_, finding = check_ports()
    assert (finding.subject, finding.level) == ("sockets", Level.ERROR)


@pytest.mark.parametrize(
    ("limit", "text", "fix"),
    [
        ("ulimit -n 64", "Only 64 open files are allowed; a job needs more.", "ulimit -n 4096"),
        ("ulimit -u 100", "Only 100 processes are allowed; a job needs more.", "ulimit -u 4096"),
    ],
)
def test_low_limits_are_an_error(limit: str, text: str, fix: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'{limit} && exec "$@"', "bash", sys.executable, "-c", PROGRAM, "check_limits"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    (finding,) = json.loads(done.stdout)
    assert (finding["level"], finding["text"], finding["fix"]) == ("error", text, fix)


def test_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    assert check_memory(meminfo=meminfo, cgroup=tmp_path).text == "4.0 GiB available"
    (tmp_path / "memory.current").write_text("100000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert check_memory(meminfo=meminfo, cgroup=tmp_path).level is Level.OK
    (tmp_path / "memory.max").write_text("1173741824\n")
    container = check_memory(meminfo=meminfo, cgroup=tmp_path)
    assert (container.level, container.text) == (Level.WARNING, "1.0 GiB available")
    (tmp_path / "memory.max").write_text("200000000\n")
    assert check_memory(meminfo=meminfo, cgroup=tmp_path).level is Level.ERROR
    assert check_memory(meminfo=tmp_path / "none", cgroup=tmp_path / "none").level is Level.ABSENT


def test_system_without_process_control_is_a_warning() -> None:
    assert check_system("linux").level is Level.OK
    assert check_system("darwin").level is Level.WARNING
