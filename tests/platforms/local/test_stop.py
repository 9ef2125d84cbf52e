"""A node that is stopped may finish what it does; one that does not want to stop is killed after its grace."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.messages import ListNodes, Stop, encode
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest


def test_node_that_handles_sigterm_ends_by_itself(
    host: Host, node: Callable[..., NodeRequest], eventually: Callable[[Callable[[], object]], None]
) -> None:
    script = "trap 'echo finished; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    host.spawn(node("polite", "sh", "-c", script))
    eventually(lambda: host.tail("polite") == ["ready"])
    host.terminate("polite", 50)
    status = host.wait("polite", 60)
    assert (status.reason, status.phase, status.exit_code) == (EndReason.STOPPED, NodePhase.SUCCEEDED, 0)
    assert host.tail("polite") == ["ready", "finished"]


def test_a_node_that_ignores_sigterm_is_killed_after_the_grace(
    host: Host,
    node: Callable[..., NodeRequest],
    eventually: Callable[[Callable[[], object]], None],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    child = tmp_path / "child"
    script = f"trap '' TERM; sh -c 'echo $$ > {child}.new; mv {child}.new {child}; exec sleep 1000'"
    host.spawn(node("stubborn", "sh", "-c", script))
    pids = [host.pid("stubborn"), pid_in(child)]
    asked = time.monotonic()
    host.terminate("stubborn", 0.3)
    status = host.wait("stubborn", 60)
    assert time.monotonic() - asked >= 0.3
    assert (status.reason, status.phase, status.exit_code) == (EndReason.STOPPED, NodePhase.FAILED, 137)
    all_gone(*pids)


def test_only_the_node_itself_is_asked_not_its_helpers(
    host: Host, node: Callable[..., NodeRequest], eventually: Callable[[Callable[[], object]], None]
) -> None:
    helper = "trap 'echo helper was terminated' TERM; echo ready; while [ ! -e go ]; do sleep 0.01; done"
    script = f"trap 'echo node was terminated; exit 0' TERM; sh -c \"{helper}\" & while :; do wait; done"
    host.spawn(node("parent", "sh", "-c", script))
    eventually(lambda: "ready" in host.tail("parent"))
    host.terminate("parent", 50)
    host.wait("parent", 60)
    assert host.tail("parent") == ["ready", "node was terminated"]


@pytest.mark.parametrize("graces", [(10000, 0.1), (0.1, 10000)])
def test_the_shortest_grace_counts(
    host: Host,
    node: Callable[..., NodeRequest],
    eventually: Callable[[Callable[[], object]], None],
    graces: tuple[float, float],
) -> None:
    host.spawn(node("stubborn", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"))
    eventually(lambda: host.tail("stubborn") == ["ready"])
    for grace in graces:
        host.terminate("stubborn", grace)
    assert host.wait("stubborn", 60).exit_code == 137


def test_a_node_that_had_ended_before_was_not_stopped_by_us(
    host: Host, node: Callable[..., NodeRequest], all_gone: Callable[..., None], tmp_path: Path
) -> None:
    """Killed and stopped while the keeper cannot look: both wait for it when it can again."""
    host.spawn(node("worker-0", "sleep", "1000"))
    pid = host.pid("worker-0")
    assert pid is not None
    assert host._keeper is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "socket"))
        client.sendall(encode(ListNodes(id=1)))
        assert client.recv(65536)
        os.kill(host._keeper.pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        all_gone(host.pid("worker-0"))
        client.sendall(encode(Stop(id=2, name="worker-0", grace_seconds=50)))
        os.kill(host._keeper.pid, signal.SIGCONT)
        assert host.wait("worker-0", 60).reason is EndReason.KILLED


def test_a_node_stopped_with_sigstop_can_be_ended(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("frozen", "sh", "-c", "kill -STOP $$"))
    host.terminate("frozen", 0.1)
    assert host.wait("frozen", 60).reason is EndReason.STOPPED


def test_stop_all_returns_when_nothing_runs(
    host: Host, node: Callable[..., NodeRequest], is_alive: Callable[[int], bool]
) -> None:
    for number in range(10):
        host.spawn(node(f"plain-{number}", "sleep", "1000"))
        host.spawn(node(f"stubborn-{number}", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    pids = [host.pid(status.name) for status in host.statuses()]
    host.stop_all(0.2)
    assert {status.reason for status in host.statuses()} == {EndReason.STOPPED}
    assert not any(pid is None or is_alive(pid) for pid in pids)


def test_kill_all(host: Host, node: Callable[..., NodeRequest]) -> None:
    for number in range(10):
        host.spawn(node(f"stubborn-{number}", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    host.kill_all()
    assert {status.exit_code for status in host.statuses()} == {137}


def test_close_kills_nodes_and_reports_their_end(
    host: Host, node: Callable[..., NodeRequest], is_alive: Callable[[int], bool], tmp_path: Path
) -> None:
    host.spawn(node("plain", "sleep", "1000"))
    pid = host.pid("plain")
    host.close()
    host.close()
    assert pid is not None
    assert not is_alive(pid)
    assert host.wait("plain", 0).reason is EndReason.STOPPED
    assert os.listdir(tmp_path) == ["logs"]
