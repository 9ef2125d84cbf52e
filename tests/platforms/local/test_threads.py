"""A host may be used from any thread, and by several at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest


def test_several_threads_start_and_wait_at_once(host: Host, node: Callable[..., NodeRequest]) -> None:
    def run(number: int) -> int | None:
        host.spawn(node(f"worker-{number}", "sh", "-c", f"exit {number}"))
        return host.wait(f"worker-{number}", 60).exit_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(40))) == list(range(40))


def test_all_get_the_same_node_for_the_same_name(host: Host, node: Callable[..., NodeRequest]) -> None:
    def run(_: int) -> int | None:
        host.spawn(node("worker-0", "sleep", "1000"))
        return host.pid("worker-0")

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(run, range(40)))) == 1
