"""What a host lacks is reported before the job starts, by the host and with what to do about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from e2e.conftest import ROOT
from e2e.ssh.machines import SshHosts
from elasticdl.doctor.finding import Level
from elasticdl.doctor.host_checks import check_hosts as doctor_hosts
from elasticdl.errors import UserError
from elasticdl.platforms.ssh.host_check import check_hosts
from elasticdl.platforms.ssh.launch import Document, SshOptions
from elasticdl.version import VERSION


def problem(
    hosts: SshHosts, *names: str, document: Document | None = None, python: str = sys.executable
) -> UserError:
    with pytest.raises(UserError) as caught:
        check_hosts(names, SshOptions(python=python, config=str(hosts.config)), document or Document())
    return caught.value


def test_doctor_reports_each_host(hosts: SshHosts) -> None:
    hosts.configure("ill", address="127.0.0.1", port=1)
    good, bad = doctor_hosts(("first", "ill"), config=str(hosts.config))
    assert (good.subject, good.level) == ("host first", Level.OK)
    assert good.text.startswith(f"elasticdl {VERSION} at {sys.executable}, ")
    assert (bad.subject, bad.level) == ("host ill", Level.ERROR)
    assert bad.fix == "`ssh ill true` must work from this machine."


def test_every_unreachable_host_is_named(hosts: SshHosts) -> None:
    # Nothing listens at the first port.
    hosts.configure("gone", address="127.0.0.1", port=1)
    hosts.configure("away", address="127.0.0.1", port=1)
    error = problem(hosts, "first", "gone", "away")
    assert [line.partition(":")[0] for line in error.message.splitlines()] == [
        "Host gone cannot be reached",
        "Host away cannot be reached",
    ]
    assert "Connection refused" in error.message
    assert "`ssh gone true` must work" in error.hint


def test_missing_key_names_the_command_that_installs_one(hosts: SshHosts, tmp_path: Path) -> None:
    other = tmp_path / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    hosts.configure_again("locked", of="first", key=other)
    error = problem(hosts, "locked")
    assert "Permission denied" in error.message
    assert "ssh-copy-id locked" in error.hint


def test_unknown_host_key_is_reported(hosts: SshHosts) -> None:
    # ssh looks the key up under this name, which no entry has.
    hosts.configure_again("strange", of="first", alias="an-unknown-name")
    error = problem(hosts, "strange")
    assert "Host key verification failed" in error.message
    assert "confirm its key" in error.hint


def test_host_without_python(hosts: SshHosts) -> None:
    error = problem(hosts, "first", python="/no/such/python")
    assert error.message.startswith("Host first has no Python at /no/such/python")
    assert "--hosts_python" in error.hint


def test_host_without_elasticdl_is_reported(hosts: SshHosts, tmp_path: Path) -> None:
    # A module that comes first and cannot be imported, as where nothing is installed.
    (tmp_path / "elasticdl.py").write_text("raise ModuleNotFoundError(\"No module named 'elasticdl'\")\n")
    error = problem(hosts, "first", document=Document(directory=str(tmp_path), version="2"))
    assert "cannot import elasticdl: ModuleNotFoundError: No module named 'elasticdl'" in error.message
    assert "Install the same version" in error.hint


def test_host_with_another_version(hosts: SshHosts, tmp_path: Path) -> None:
    (tmp_path / "elasticdl.py").write_text("__version__ = '1.0'\n")
    error = problem(hosts, "first", document=Document(directory=str(tmp_path), version="2.0"))
    assert "has elasticdl 1.0, and this job is of 2.0" in error.message


def test_host_without_the_model_zoo(hosts: SshHosts, tmp_path: Path) -> None:
    missing = tmp_path / "zoo"
    error = problem(hosts, "second", document=Document(needed={"--model_zoo": str(missing)}))
    assert error.message == f"Host second: there is no {missing} (--model_zoo)."
    assert "a shared folder, or a copy" in error.hint


def test_train_ends_with_the_problem_of_the_host(hosts: SshHosts, tmp_path: Path) -> None:
    hosts.configure("off", address="127.0.0.1", port=1)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "elasticdl.cli.main", "train", "--job_command=true", "--job_name=off"),
            *("--hosts=off", f"--ssh_config={hosts.config}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Host off cannot be reached" in done.stderr
