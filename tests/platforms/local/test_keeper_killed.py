"""The keeper may be killed like anything else: its nodes end with it, and the host goes on with another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest


def kill_keeper(host: Host) -> None:
    assert host._keeper is not None
    os.kill(host._keeper.pid, signal.SIGKILL)


def test_nodes_and_what_they_left_end_with_it(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    daemon: Callable[..., tuple[str, ...]],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    host.spawn(node("plain", "sleep", "1000"))
    host.spawn(node("parent", *daemon(tmp_path / "daemon", "sleep", "1000")))
    pids = [host.pid("plain"), host.pid("parent"), pid_in(tmp_path / "daemon")]
    kill_keeper(host)
    assert host.wait("plain", 60).reason is EndReason.KILLED
    assert host.wait("parent", 60).reason is EndReason.KILLED
    all_gone(*pids)


def test_the_host_goes_on(host: Host, node: Callable[..., NodeRequest], tmp_path: Path) -> None:
    host.spawn(node("before", "sh", "-c", "exit 3"))
    host.wait("before", 60)
    host.spawn(node("lost", "sleep", "1000"))
    kill_keeper(host)
    host.wait("lost", 60)

    assert host.spawn(node("after", "sleep", "1000")).phase is NodePhase.RUNNING
    assert host.spawn(node("before", "sleep", "1000")).exit_code == 3

    async def listed() -> dict[str, EndReason]:
        platform = LocalPlatform(tmp_path / "socket")
        nodes = {status.name: status.reason for status in await platform.nodes()}
        await platform.close()
        return nodes

    expected = {"before": EndReason.ERROR, "lost": EndReason.KILLED, "after": EndReason.NONE}
    assert asyncio.run(listed()) == expected


def test_closing_afterwards_is_clean(host: Host, node: Callable[..., NodeRequest], tmp_path: Path) -> None:
    host.spawn(node("lost", "sleep", "1000"))
    kill_keeper(host)
    host.wait("lost", 60)
    host.close()
    assert not (tmp_path / "socket").exists()


def test_the_master_can_be_started_again(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("master", "sh", "-c", "echo first; sleep 1000", role="master"))
    kill_keeper(host)
    host.wait("master", 60)
    host.spawn(node("master", "sh", "-c", "echo second; exit 5", role="master"), again=True)
    assert host.wait("master", 60).exit_code == 5
    assert host.tail("master")[-1] == "second"
