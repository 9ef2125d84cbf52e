"""Which host a node is placed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.platforms.ssh.host_table import HostTable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "placements.jsonl"


def test_each_role_is_spread_over_the_hosts(file: Path) -> None:
    table = HostTable(("a", "b"), file)
    nodes = [
        ("ps-0", "ps"),
        ("ps-1", "ps"),
        ("worker-0", "worker"),
        ("worker-1", "worker"),
        ("worker-2", "worker"),
    ]
    assert [table.place(name, role, 0.0) for name, role in nodes] == ["a", "b", "a", "b", "a"]


def test_place_of_an_ended_node_is_free(file: Path) -> None:
    table = HostTable(("a", "b"), file)
    for number in range(3):
        table.place(f"worker-{number}", "worker", 0.0)
    table.end("worker-1", 1.0, is_lost=False)
    assert table.place("worker-3", "worker", 1.0) == "b"


def test_same_node_has_the_same_host_after_a_restart_of_the_master(file: Path) -> None:
    first = HostTable(("a", "b"), file)
    placed = [first.place(f"worker-{number}", "worker", 0.0) for number in range(2)]
    second = HostTable(("a", "b"), file)
    assert [second.place(f"worker-{number}", "worker", 9.0) for number in range(2)] == placed
    assert second.place("worker-2", "worker", 9.0) == "a"


def test_nodes_of_an_earlier_attempt_take_no_place(file: Path) -> None:
    first = HostTable(("a", "b"), file)
    for number in range(3):
        first.place(f"worker-{number}", "worker", 0.0)
    second = HostTable(("a", "b"), file)
    second.keep_only({"worker-0"})
    assert [second.place(f"worker-{number}", "worker", 0.0) for number in (3, 4)] == ["b", "a"]


def test_lost_host_is_avoided_for_longer_each_time(file: Path) -> None:
    table = HostTable(("a", "b"), file)
    assert table.place("worker-0", "worker", 0.0) == "a"
    table.end("worker-0", 10.0, is_lost=True)
    assert table.place("worker-1", "worker", 39.0) == "b"
    assert table.place("worker-2", "worker", 40.0) == "a"
    table.end("worker-2", 50.0, is_lost=True)
    assert table.place("worker-3", "worker", 109.0) == "b"
    assert table.place("worker-4", "worker", 110.0) == "a"


def test_nodes_lost_with_their_host_count_once(file: Path) -> None:
    table = HostTable(("a",), file)
    for name in ("worker-0", "worker-1"):
        table.place(name, "worker", 0.0)
    for name in ("worker-0", "worker-1"):
        table.end(name, 10.0, is_lost=True)
    table = HostTable(("a", "b"), file)
    table.end("worker-0", 10.0, is_lost=True)
    table.end("worker-1", 10.5, is_lost=True)
    assert table.place("worker-2", "worker", 40.0) == "a"


def test_without_a_host_left_the_one_that_is_free_first_is_tried(file: Path) -> None:
    table = HostTable(("a", "b"), file)
    table.place("worker-0", "worker", 0.0)
    table.place("worker-1", "worker", 0.0)
    table.end("worker-1", 1.0, is_lost=True)
    table.end("worker-0", 2.0, is_lost=True)
    assert table.place("worker-2", "worker", 3.0) == "b"


def test_host_that_works_again_is_forgiven(file: Path) -> None:
    table = HostTable(("a",), file)
    for number, is_lost in enumerate((True, False, True)):
        table.place(f"worker-{number}", "worker", 100.0 * number)
        table.end(f"worker-{number}", 100.0 * number, is_lost=is_lost)
    table = HostTable(("a", "b"), file)
    for number, is_lost in enumerate((True, False, True)):
        table.end(f"worker-{number}", 100.0 * number, is_lost=is_lost)
    assert table.place("worker-3", "worker", 230.0) == "a"


def test_fixed_host_is_taken_even_if_it_was_lost(file: Path) -> None:
    table = HostTable(("a", "b"), file)
    table.place("worker-0", "worker", 0.0, fixed="a")
    table.end("worker-0", 1.0, is_lost=True)
    assert table.place("worker-1", "worker", 2.0, fixed="a") == "a"
