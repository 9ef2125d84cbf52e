"""However a host ends, nothing of its job is left running: not its nodes, not what they have started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.platforms.conftest import OtherHost

STUBBORN = ("sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1000 & wait; done")


def test_kill_9_takes_the_nodes_along(
    other_host: Callable[..., OtherHost], all_gone: Callable[..., None], is_alive: Callable[[int], bool]
) -> None:
    host = other_host(plain=("sleep", "1000"), stubborn=STUBBORN)
    assert all(is_alive(pid) for pid in host.nodes.values())
    host.process.kill()
    all_gone(host.keeper, *host.nodes.values())


def test_kill_9_takes_the_children_of_nodes_along(
    other_host: Callable[..., OtherHost],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    child = tmp_path / "child"
    command = ("sh", "-c", f"sh -c 'echo $$ > {child}.new; mv {child}.new {child}; exec sleep 1000' & wait")
    host = other_host(parent=command)
    pid = pid_in(child)
    host.process.kill()
    all_gone(host.keeper, pid, *host.nodes.values())


def test_kill_9_takes_daemons_of_nodes_along(
    other_host: Callable[..., OtherHost],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    daemon: Callable[..., tuple[str, ...]],
    tmp_path: Path,
) -> None:
    host = other_host(parent=daemon(tmp_path / "daemon", "sleep", "1000"))
    pid = pid_in(tmp_path / "daemon")
    host.process.kill()
    all_gone(host.keeper, pid, *host.nodes.values())


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGSEGV], ids=lambda number: number.name
)
def test_any_other_end_does_so_too(
    other_host: Callable[..., OtherHost], all_gone: Callable[..., None], number: signal.Signals
) -> None:
    host = other_host(plain=("sleep", "1000"))
    host.process.send_signal(number)
    all_gone(host.process.pid, host.keeper, *host.nodes.values())


@pytest.mark.parametrize("then", ["pass", "raise SystemExit(3)", "os._exit(0)", "os.abort()"])
def test_a_host_that_was_never_closed(
    other_host: Callable[..., OtherHost], all_gone: Callable[..., None], then: str
) -> None:
    host = other_host(then, plain=("sleep", "1000"), stubborn=STUBBORN)
    host.process.wait()
    all_gone(host.keeper, *host.nodes.values())


@pytest.mark.parametrize("then", ["pass", "raise SystemExit(3)"])
def test_a_host_that_ends_in_order_waits_for_the_end_of_its_nodes(
    other_host: Callable[..., OtherHost], is_alive: Callable[[int], bool], then: str
) -> None:
    host = other_host(then, plain=("sleep", "1000"), stubborn=STUBBORN)
    host.process.wait()
    assert not any(is_alive(pid) for pid in [host.keeper, *host.nodes.values()])


def test_a_forked_copy_of_the_host_does_not_keep_the_nodes_alive(
    other_host: Callable[..., OtherHost],
    all_gone: Callable[..., None],
    pid_in: Callable[[Path], int],
    is_alive: Callable[[int], bool],
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy"
    fork = f"""
import signal
if os.fork() == 0:
    Path({str(copy)!r} + ".new").write_text(str(os.getpid()))
    os.rename({str(copy)!r} + ".new", {str(copy)!r})
    while True:
        signal.pause()
sys.stdin.read()
"""
    host = other_host(fork, plain=("sleep", "1000"))
    pid = pid_in(copy)
    try:
        host.process.kill()
        all_gone(host.keeper, *host.nodes.values())
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_forked_copy_that_ends_takes_nothing_along(
    other_host: Callable[..., OtherHost], is_alive: Callable[[int], bool]
) -> None:
    fork = """
if os.fork() == 0:
    raise SystemExit(0)
_, status = os.wait()
after = host.spawn(NodeRequest(name="after", role="worker", command=("sh", "-c", "exit 3")))
print(status, host.wait("after").exit_code, flush=True)
sys.stdin.read()
"""
    host = other_host(fork, plain=("sleep", "1000"))
    assert host.output.readline() == "0 3\n"
    assert all(is_alive(pid) for pid in host.nodes.values())


def test_killed_while_it_starts_its_nodes(
    other_host: Callable[..., OtherHost], all_gone: Callable[..., None], tmp_path: Path
) -> None:
    """No node is reported yet: every process that carries the job's mark is one."""
    many = """
for number in range(1000):
    host.spawn(NodeRequest(name=f"late-{number}", role="worker", command=("sleep", "1000")))
    if number == 20:
        print("20", flush=True)
"""
    host = other_host(many)
    host.output.readline()
    host.process.kill()
    all_gone(host.keeper)
    marked = f"ELASTICDL_PROCESS_OF={tmp_path / 'logs'}/".encode()
    left = []
    for entry in Path("/proc").iterdir():
        try:
            if marked in (entry / "environ").read_bytes():
                left.append(entry.name)
        except OSError:
            continue
    assert sys.platform.startswith("linux")
    assert left == []
