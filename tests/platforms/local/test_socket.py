"""The job's socket is private, and where it cannot be made the user learns why."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest


def test_socket_accepts_only_its_user(tmp_path: Path) -> None:
    path = tmp_path / "private" / "socket"
    before = os.umask(0)
    try:
        with Host(path, tmp_path / "logs", os.environ):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert not path.exists()


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 100) / "socket"
    with pytest.raises(UserError, match="is too long for a socket") as raised:
        Host(path, tmp_path / "logs", os.environ).start()
    assert str(path) in raised.value.message
    assert "ELASTICDL_HOME" in raised.value.hint


def test_a_file_in_the_way_is_not_harmed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("precious")
    with pytest.raises(UserError, match="Address already in use"):
        Host(path, tmp_path / "logs", os.environ).start()
    assert path.read_text() == "precious"


def test_a_host_that_could_not_start_can_be_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("in the way")
    with pytest.raises(UserError):
        Host(path, tmp_path / "logs", os.environ).start()
    path.unlink()
    with Host(path, tmp_path / "logs", os.environ):
        assert path.exists()


def test_a_python_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(UserError, match="/no/such/python: No such file"):
        Host(tmp_path / "socket", tmp_path / "logs", os.environ).start()


def test_a_python_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: Callable[..., NodeRequest]
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho this is no python >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(broken))
    with (
        Host(tmp_path / "socket", tmp_path / "logs", os.environ) as host,
        pytest.raises(UserError, match="does not stay alive") as raised,
    ):
        host.spawn(node("worker-0", "true"))
    assert "this is no python" in raised.value.hint
