"""Nodes begin with the host's environment and what their request adds; nothing of the keeper's gets to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest

SHOW = """
import os, signal
print(sorted(os.listdir("/proc/self/fd"))[:3])
print([s.name for s in signal.Signals if signal.getsignal(s) is signal.SIG_IGN])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_the_request_adds_to_and_overrides_the_host_s(
    tmp_path: Path, node: Callable[..., NodeRequest]
) -> None:
    environment = {**os.environ, "ONE": "host", "TWO": "host"}
    with Host(tmp_path / "socket", tmp_path / "logs", environment) as host:
        host.spawn(node("worker-0", "sh", "-c", "echo $ONE $TWO $THREE", TWO="node", THREE="node"))
        host.wait("worker-0", 60)
        assert host.tail("worker-0") == ["host node node"]


def test_host_copies_its_environment(tmp_path: Path, node: Callable[..., NodeRequest]) -> None:
    environment = {**os.environ, "ONE": "before"}
    with Host(tmp_path / "socket", tmp_path / "logs", environment) as host:
        environment["ONE"] = "after"
        host.spawn(node("worker-0", "sh", "-c", "echo $ONE"))
        host.wait("worker-0", 60)
        assert host.tail("worker-0") == ["before"]


def test_no_signals_or_descriptors_are_handed_down(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "sleep", "1000"))
    host.spawn(node("worker-1", "sh", "-c", "ls /proc/self/fd | wc -l; grep Sig.[gl] /proc/self/status"))
    host.wait("worker-1", 60)
    host.spawn(node("worker-2", sys.executable, "-I", "-S", "-c", SHOW))
    host.wait("worker-2", 60)
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert host.tail("worker-2") == ["['0', '1', '2']", "['SIGPIPE', 'SIGXFSZ']", "set()"]
    assert int(host.tail("worker-1")[0]) == 4  # the three, and the folder that `ls` reads
