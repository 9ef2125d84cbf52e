"""Two hundred nodes at once, and many that end at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest

NUMBER = 200


def test_all_are_started_listed_and_ended(
    host: Host,
    node: Callable[..., NodeRequest],
    all_gone: Callable[..., None],
    is_alive: Callable[[int], bool],
    tmp_path: Path,
) -> None:
    names = [f"worker-{number}" for number in range(NUMBER)]

    async def start_all() -> list[NodePhase]:
        platform = LocalPlatform(tmp_path / "socket")
        script = "echo this is $0; sleep 1000"
        await asyncio.gather(*(platform.start(node(name, "sh", "-c", script, name)) for name in names))
        phases = [status.phase for status in await platform.nodes()]
        await platform.close()
        return phases

    assert asyncio.run(start_all()) == [NodePhase.RUNNING] * NUMBER
    pids = [host.pid(name) for name in names]
    assert len(set(pids)) == NUMBER
    host.stop_all(0)
    assert {status.reason for status in host.statuses()} == {EndReason.STOPPED}
    assert not any(pid is None or is_alive(pid) for pid in pids)


def test_ends_of_all_nodes_are_reported(host: Host, node: Callable[..., NodeRequest]) -> None:
    for number in range(50):
        host.spawn(node(f"worker-{number}", "sh", "-c", f"echo output {number}; exit {number % 10}"))
    for number in range(50):
        assert host.wait(f"worker-{number}", 60).exit_code == number % 10
        assert host.tail(f"worker-{number}") == [f"output {number}"]
