"""What a node has started ends with the node, wherever it has hidden; what other nodes have started does not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import EndReason, NodeRequest


def test_children_of_a_node_that_exits(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    script = "for n in 1 2 3; do sleep 1000 & echo $! > $n; done; echo $! > all"
    host.spawn(node("parent", "sh", "-c", f"cd {tmp_path}; {script}"))
    assert host.wait("parent", 60).reason is EndReason.COMPLETED
    all_gone(*(pid_in(tmp_path / str(n)) for n in (1, 2, 3)))


def test_a_daemon_of_a_node_that_exits(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    daemon: Callable[..., tuple[str, ...]],
    tmp_path: Path,
) -> None:
    host.spawn(node("parent", *daemon(tmp_path / "daemon")))
    assert host.wait("parent", 60).reason is EndReason.COMPLETED
    all_gone(pid_in(tmp_path / "daemon"))


def test_a_child_in_a_group_of_its_own_and_without_environment(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    """Known by its session alone."""
    program = f"""
import os, signal, sys
if os.fork() == 0:
    os.setpgid(0, 0)
    os.chdir("{tmp_path}")
    os.execve("/bin/sh", ["sh", "-c", "echo $$ > new; mv new child; exec sleep 1000"], {{}})
"""
    waiting = f"while [ ! -e {tmp_path}/child ]; do sleep 0.01; done"
    command = (sys.executable, "-I", "-S", "-c", program + f"os.execvp('sh', ['sh', '-c', {waiting!r}])")
    host.spawn(node("parent", *command))
    assert host.wait("parent", 60).reason is EndReason.COMPLETED
    all_gone(pid_in(tmp_path / "child"))


def test_a_daemon_of_a_node_that_is_killed(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    daemon: Callable[..., tuple[str, ...]],
    tmp_path: Path,
) -> None:
    host.spawn(node("parent", *daemon(tmp_path / "daemon", "sh", "-c", "kill -9 $$")))
    assert host.wait("parent", 60).reason is EndReason.KILLED
    all_gone(pid_in(tmp_path / "daemon"))


def test_the_daemon_of_another_node_is_let_be(
    host: Host,
    node: Callable[..., NodeRequest],
    is_alive: Callable[[int], bool],
    pid_in: Callable[[Path], int],
    daemon: Callable[..., tuple[str, ...]],
    tmp_path: Path,
) -> None:
    host.spawn(node("parent", *daemon(tmp_path / "daemon", "sleep", "1000")))
    pid = pid_in(tmp_path / "daemon")
    for number in range(5):
        host.spawn(node(f"other-{number}", "true"))
        host.wait(f"other-{number}", 60)
    assert is_alive(pid)
    host.terminate("parent", 50)
    host.wait("parent", 60)


def test_a_daemon_without_its_environment_ends_with_the_host(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    daemon: Callable[..., tuple[str, ...]],
    tmp_path: Path,
) -> None:
    """Its job cannot be determined, so it may live while the job does."""
    host.spawn(node("parent", "env", "-i", *daemon(tmp_path / "daemon")))
    host.wait("parent", 60)
    pid = pid_in(tmp_path / "daemon")
    host.close()
    all_gone(pid)


def test_output_of_survivors_does_not_delay_the_end(
    host: Host,
    node: Callable[..., NodeRequest],
    eventually: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    host.spawn(
        node("parent", "sh", "-c", f"setsid yes & while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 4")
    )
    eventually(lambda: host.tail("parent", 1))
    (tmp_path / "go").touch()
    assert host.wait("parent", 60).exit_code == 4
