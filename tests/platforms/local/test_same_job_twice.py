"""A job has one host at a time; after a crash the next one may come at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.launch import take_lock
from elasticdl.platforms.platform import NodePhase, NodeRequest
from tests.platforms.conftest import OtherHost


def test_a_second_host_is_refused(
    host: Host, node: Callable[..., NodeRequest], is_alive: Callable[[int], bool], tmp_path: Path
) -> None:
    host.spawn(node("worker-0", "sleep", "1000"))
    with pytest.raises(UserError, match=f"is already running \\(process {os.getpid()}\\)"):
        take_lock(tmp_path / "logs", seconds=0)
    pid = host.pid("worker-0")
    assert pid is not None
    assert is_alive(pid)
    assert host.spawn(node("worker-1", "sleep", "1000")).phase is NodePhase.RUNNING


def test_after_a_crash_the_next_may_come_at_once(
    other_host: Callable[..., OtherHost],
    make_host: Callable[..., Host],
    node: Callable[..., NodeRequest],
    is_alive: Callable[[int], bool],
) -> None:
    before = other_host(plain=("sleep", "1000"))
    before.process.kill()
    host = make_host()
    assert not any(is_alive(pid) for pid in [before.keeper, *before.nodes.values()])
    assert host.spawn(node("plain", "sleep", "1000")).phase is NodePhase.RUNNING


def test_after_an_end_in_order_too(make_host: Callable[..., Host], node: Callable[..., NodeRequest]) -> None:
    for _ in range(3):
        host = make_host()
        assert host.spawn(node("plain", "sleep", "1000")).phase is NodePhase.RUNNING
        host.close()


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UserError, match="cannot be locked"):
        take_lock(tmp_path)
