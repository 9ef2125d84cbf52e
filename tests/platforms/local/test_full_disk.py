"""A full disk is reported before a job starts, and does not hurt a node that prints while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.launch import prepare_log_folder
from elasticdl.platforms.local.log_files import LogWriter
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest

# A device on which every write fails for lack of space: a full disk at the price of a link.
FULL = "/dev/full"


def test_a_job_is_not_started(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / ".probe").symlink_to(FULL)
    with pytest.raises(UserError, match="No space left on device") as raised:
        Host(tmp_path / "socket", logs, os.environ).start()
    assert str(logs) in raised.value.message
    assert "ELASTICDL_HOME" in raised.value.hint


def test_a_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        prepare_log_folder(tmp_path / "file" / "logs")


def test_a_node_that_prints_goes_on(
    host: Host,
    node: Callable[..., NodeRequest],
    tmp_path: Path,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    (tmp_path / "logs" / "worker-0.log").symlink_to(FULL)
    status = host.spawn(
        node("worker-0", "sh", "-c", f"seq 100000; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")
    )
    assert status.phase is NodePhase.RUNNING
    eventually(lambda: "No space left on device" in host.statuses()[0].message)
    (tmp_path / "go").touch()
    assert host.wait("worker-0", 60).reason is EndReason.COMPLETED


def test_a_log_says_what_it_has_lost(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.symlink_to(FULL)
    writer = LogWriter(path, limit=10)
    writer.write(b"lost")
    assert "No space left" in writer.trouble
    # The turn-over puts the link away, and with it the full disk.
    writer.write(b" and lost\nkept")
    assert writer.trouble == ""
    writer.close()
    assert path.read_text() == "[14 bytes of output could not be written]\nkept"


def test_a_node_whose_log_cannot_be_opened_cannot_start(
    host: Host, node: Callable[..., NodeRequest], tmp_path: Path
) -> None:
    (tmp_path / "logs" / "worker-0.log").mkdir()
    status = host.spawn(node("worker-0", "true"))
    assert status.reason is EndReason.CANNOT_START
    assert "worker-0.log" in status.message
