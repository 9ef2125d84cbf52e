"""What is known of a worker's batches when it ends: by the servers from its pushes, by the master from its reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elasticdl.data.reader import BadRange
from tests.worker.small_loop import SHARD, batch, close, last_push, make_loop, train


@pytest.fixture
def loop(table_servers: tuple[list[Any], list[str]]) -> Iterator[Any]:
    made = make_loop(table_servers[1])
    yield made
    close(made)


def test_servers_know_how_far_a_shard_is(loop: Any, table_servers: tuple[list[Any], list[str]]) -> None:
    train(loop, batch(110), batch(120))
    assert last_push(table_servers) == (7, 120, 2)


def test_servers_know_which_shard_without_order_has_been_begun(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    train(loop, batch(110, atomic=True), batch(120, atomic=True))
    assert last_push(table_servers) == (7, SHARD.start, 2)


def test_last_push_of_unordered_shard_has_its_end(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    train(loop, batch(110, atomic=True), batch(130, atomic=True))
    assert last_push(table_servers) == (7, SHARD.end, 2)


def test_pushed_position_stays_within_truncated_lease(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    """Where samples could not be read, batches do not lie where the master thinks."""
    train(loop, batch(110))
    loop._leases.end_at(SHARD.lease_id, 115)
    train(loop, batch(120))
    assert last_push(table_servers) == (7, 115, 2)


def test_bad_records_are_reported_before_the_batch_behind_them(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[int] = []
    loop._trainer.before_each = lambda: reported.append(len(loop._link.bad))
    flush = loop._reporter.flush

    def answered_if_waited_for() -> None:
        loop._link.answers.set()
        flush()

    monkeypatch.setattr(loop._reporter, "flush", answered_if_waited_for)
    loop._link.answers.clear()
    bad = BadRange(start=100, end=103, where="file:0", reason="zeros")
    train(loop, batch(110, bad=(bad,), size=7))
    assert reported == [1]
    assert loop._link.bad == [(100, 103)]


def test_pushed_batches_are_reported_before_program_error(loop: Any) -> None:
    loop._last_report_seconds = 60.0
    loop._trainer.given = [batch(110), batch(120), batch(130, features="bad")]
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert loop._link.reported == {7: 120}
    assert loop.lease_id == 7


def test_a_program_that_has_failed_does_not_wait(loop: Any) -> None:
    loop._last_report_seconds = 0.0
    loop._link.answers.clear()
    loop._trainer.given = [batch(110), batch(120, features="bad")]
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert loop._link.reported == {}
