"""The host's socket has a path that fits into a socket's address, wherever the jobs are kept."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    folder = tmp_path / ("deep" * 30) / "jobs" / "one"
    folder.mkdir(parents=True)
    return folder


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_a_short_path_stays_in_the_folder(short: Path) -> None:
    assert JobFolder(short).socket_path() == short / "host.sock"
    bind(JobFolder(short).socket_path())


def test_a_long_path_goes_to_a_private_folder(
    deep: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    path = JobFolder(deep).socket_path()
    bind(path)
    assert path == JobFolder(deep).socket_path()
    assert path != JobFolder(deep.parent).socket_path()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_can_enter_is_not_used(
    deep: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    private = short / f"elasticdl-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    with pytest.raises(UserError, match="belongs to you alone"):
        JobFolder(deep).socket_path()


def test_a_link_in_its_place_is_not_followed(
    deep: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    (short / "elsewhere").mkdir(mode=0o700)
    (short / f"elasticdl-{os.getuid()}").symlink_to(short / "elsewhere")
    with pytest.raises(UserError, match="belongs to you alone"):
        JobFolder(deep).socket_path()


def test_deleting_a_job_removes_its_socket(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch, job: Callable[..., JobSpec]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    store = JobStore(tmp_path / ("deep" * 30))
    folder = store.create(job(job_name="one"))
    path = folder.socket_path()
    bind(path)
    folder.release()
    store.delete("one")
    assert not path.exists()
