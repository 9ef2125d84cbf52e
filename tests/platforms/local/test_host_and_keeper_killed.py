"""Host and keeper killed at the same instant: nodes die with the keeper, the rest when the job is run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from tests.platforms.conftest import OtherHost


def test_next_host_kills_leftover_processes(
    other_host: Callable[..., OtherHost],
    make_host: Callable[..., Host],
    all_gone: Callable[..., None],
    is_alive: Callable[[int], bool],
    daemon: Callable[..., tuple[str, ...]],
    pid_in: Callable[[Path], int],
    tmp_path: Path,
) -> None:
    host = other_host(parent=daemon(tmp_path / "daemon", "sleep", "1000"))
    survivor = pid_in(tmp_path / "daemon")
    os.kill(host.keeper, signal.SIGSTOP)  # so that it cannot see the end of the host
    host.process.kill()
    host.process.wait()
    os.kill(host.keeper, signal.SIGKILL)
    all_gone(host.keeper, *host.nodes.values())

    assert is_alive(survivor)
    make_host()
    all_gone(survivor)
