"""A shard that turns out to have no order inside is done whole or not at all, whatever was agreed to before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elasticdl.wire import master_pb2 as pb
from tests.worker.small_loop import SHARD, batch, close, last_push, make_loop, train


@pytest.fixture
def loop(table_servers: tuple[list[Any], list[str]]) -> Iterator[Any]:
    made = make_loop(table_servers[1])
    train(made)
    yield made
    close(made)


def ask_for(loop: Any, end: int) -> None:
    loop._truncate(pb.Truncation(lease_id=SHARD.lease_id, end=end))


def test_once_begun_no_part_of_it_is_given_up(loop: Any, table_servers: tuple[list[Any], list[str]]) -> None:
    train(loop, batch(110, atomic=True))
    ask_for(loop, 120)
    train(loop, batch(120, atomic=True), batch(130, atomic=True))
    assert loop._link.given_up == []
    assert last_push(table_servers) == (7, 130, 3)


def test_of_one_that_was_promised_in_part_all_is_given_up(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    """Its batches have samples of both parts."""
    ask_for(loop, 120)
    train(loop, batch(110, atomic=True), batch(120, atomic=True), batch(130, atomic=True))
    assert loop._link.given_up == [(7, 120), (7, 100)]
    assert last_push(table_servers) == (0, 0, 0)


def test_batches_before_unordered_part_are_kept(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    ask_for(loop, 120)
    train(loop, batch(110), batch(120, atomic=True), batch(130, atomic=True))
    assert loop._link.given_up == [(7, 120), (7, 110)]
    assert last_push(table_servers) == (7, 110, 1)


def test_one_with_order_is_done_up_to_where_it_was_promised(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    ask_for(loop, 120)
    train(loop, batch(110), batch(120), batch(130))
    assert loop._link.given_up == [(7, 120)]
    assert last_push(table_servers) == (7, 120, 2)
