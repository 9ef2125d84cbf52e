"""What nodes print is in their logs: all of it, in order, however they end; the newest of it if it is too much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.log_files import LOG_BYTES
from elasticdl.platforms.platform import NodePhase, NodeRequest


def test_both_streams_in_order(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "sh", "-c", "echo one; echo two >&2; printf three"))
    host.wait("worker-0", 60)
    assert host.tail("worker-0") == ["one", "two", "three"]
    assert host.tail("worker-0", 2) == ["two", "three"]


def test_last_output_of_a_killed_node(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "sh", "-c", "seq 10000; kill -9 $$"))
    host.wait("worker-0", 60)
    assert host.tail("worker-0", 3) == ["9998", "9999", "10000"]


def test_an_error_tells_the_last_line(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "sh", "-c", "echo 'ValueError: too hot' >&2; exit 1"))
    assert host.wait("worker-0", 60).message == "exit code 1; last output: ValueError: too hot"


def test_no_node_has_a_terminal_to_read_from(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "cat"))
    assert host.wait("worker-0", 60).exit_code == 0


def test_a_log_is_continued(host: Host, node: Callable[..., NodeRequest]) -> None:
    for word in ("first", "second"):
        host.spawn(node("master", "echo", word, role="master"), again=True)
        host.wait("master", 60)
    assert host.tail("master") == ["first", "second"]


def test_a_flood_keeps_to_its_size_and_keeps_the_newest(
    host: Host, node: Callable[..., NodeRequest], tmp_path: Path
) -> None:
    """Far more than a log may hold; meanwhile the others get their turn."""
    host.spawn(node("flood", "sh", "-c", "yes 'some line of output' | head -c 200000000; echo; echo last"))
    host.spawn(node("other", "echo", "heard"))
    assert host.wait("other", 60).phase is NodePhase.SUCCEEDED
    assert host.tail("other") == ["heard"]
    assert host.wait("flood", 240).phase is NodePhase.SUCCEEDED
    assert host.tail("flood", 1) == ["last"]
    sizes = [(tmp_path / "logs" / name).stat().st_size for name in ("flood.log", "flood.log.1")]
    assert LOG_BYTES <= sum(sizes) <= 2 * LOG_BYTES + 1024 * 1024


def test_a_flood_without_end_can_be_stopped(
    host: Host, node: Callable[..., NodeRequest], eventually: Callable[[Callable[[], object]], None]
) -> None:
    host.spawn(node("flood", "yes"))
    eventually(lambda: host.tail("flood"))
    host.terminate("flood", 50)
    assert host.wait("flood", 60).exit_code == 143
