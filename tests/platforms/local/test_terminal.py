"""What is typed at the terminal reaches the host alone; what to do about it is the host's to decide."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.platforms.conftest import OtherHost


def test_ctrl_c_reaches_only_the_host(
    other_host: Callable[..., OtherHost], is_alive: Callable[[int], bool], all_gone: Callable[..., None]
) -> None:
    """The interrupt goes to the whole process group, as a terminal sends it."""
    stay = """
import signal
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print("ready", flush=True)
sys.stdin.read()
"""
    host = other_host(stay, plain=("sleep", "1000"))
    assert host.output.readline() == "ready\n"
    os.killpg(host.process.pid, signal.SIGINT)
    assert host.output.readline() == "interrupted\n"
    assert all(is_alive(pid) for pid in [host.keeper, *host.nodes.values()])
    assert all(os.getsid(pid) == pid for pid in host.nodes.values())


def test_an_interrupted_wait_leaves_the_host_in_order(other_host: Callable[..., OtherHost]) -> None:
    wait = """
try:
    print("ready", flush=True)
    host.wait("plain")
except KeyboardInterrupt:
    host.stop_all(50)
    print(host.statuses()[0].reason.value, flush=True)
"""
    host = other_host(wait, plain=("sleep", "1000"))
    assert host.output.readline() == "ready\n"
    host.process.send_signal(signal.SIGINT)
    assert host.output.readline() == "stopped\n"
    assert host.process.wait(60) == 0
