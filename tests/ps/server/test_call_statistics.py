"""A server counts what it does: every call, id and batch, whichever thread it was."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableFull, TableSpec
from elasticdl.ps.server.call_statistics import CallStatistics
from elasticdl.wire import ps_pb2

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras", options={"epsilon": 1e-7})
CLICKS = TableSpec(name="clicks", width=4)


def figures(servers: Any, token: str, number: int = 0) -> ps_pb2.Figures:
    async def ask() -> ps_pb2.Figures:
        coordinator = Coordinator(token)
        try:
            statuses = await coordinator.status_all({number: servers.addresses[number]}, figures=True)
            return statuses[number].figures
        finally:
            await coordinator.close()

    return asyncio.run(ask())


def counts(found: ps_pb2.Figures) -> dict[str, int]:
    return {one.kind: sum(one.microseconds.counts) for one in found.calls}


def ids(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def gradients(*numbers: int) -> RowGradients:
    return RowGradients(ids=ids(*numbers), values=np.ones((len(numbers), 4), np.float32))


def test_calls_rows_and_hits(start_servers: Any, token: str) -> None:
    servers = start_servers()
    client = servers.client()
    client.initialize({"w": np.zeros(6, np.float32)}, {}, ADAM, [CLICKS])
    client.pull_rows({"clicks": ids(1, 2, 3)})
    versions = client.pull().versions
    client.push({}, rows={"clicks": gradients(1, 2, 3)}, learning_rate=0.1, versions=versions)
    client.push({}, rows={"clicks": gradients(1)}, learning_rate=0.1, versions=versions)
    client.push({}, rows={}, learning_rate=0.1, versions=versions)
    client.pull_rows({"clicks": ids(2, 3, 4, 5)})

    found = figures(servers, token)
    assert counts(found) == {"pull": 1, "pull_rows": 2, "push": 3}
    (table,) = found.tables
    assert (table.table, table.rows, table.pulled, table.found, table.pushed) == ("clicks", 3, 7, 2, 4)
    # The values of a row, two slots, and its index.
    assert table.bytes >= 3 * 3 * 4 * 4
    # The values, two slots.
    assert found.dense_bytes == 3 * 6 * 4
    # All three were computed with version 0.
    assert (found.staleness.sum, sum(found.staleness.counts), found.staleness.largest) == (0 + 1 + 2, 3, 2)
    assert found.seconds > 0


def test_not_asked_for_not_sent(start_servers: Any, token: str) -> None:
    servers = start_servers()

    async def ask() -> ps_pb2.ServerStatusReply:
        coordinator = Coordinator(token)
        try:
            return (await coordinator.status_all({0: servers.addresses[0]}))[0]
        finally:
            await coordinator.close()

    assert not asyncio.run(ask()).HasField("figures")


def test_rejected_gradients_and_rows_are_counted(start_servers: Any, token: str) -> None:
    servers = start_servers(memory_limit=200_000)
    client = servers.client()
    client.initialize({}, {}, ADAM, [CLICKS])
    bad = RowGradients(ids=ids(1), values=np.full((1, 4), np.nan, np.float32))
    with pytest.raises(UserError, match="not finite"):
        client.push({}, rows={"clicks": bad}, learning_rate=0.1)
    many = RowGradients(ids=np.arange(10_000, dtype=np.int64), values=np.ones((10_000, 4), np.float32))
    with pytest.raises(UserError, match="cannot take 10,000 new rows"):
        client.push({}, rows={"clicks": many}, learning_rate=0.1)
    client.push({}, rows={"clicks": gradients(1, 2)}, learning_rate=0.1)

    found = figures(servers, token)
    assert found.not_finite == 1
    assert [(one.refused, one.pushed, one.rows) for one in found.tables] == [(10_000, 2, 2)]


def test_full_names_the_rows() -> None:
    assert TableFull("no", refused={"clicks": 3}).refused == {"clicks": 3}
    assert TableFull("no").refused == {}


def test_no_count_is_lost_when_threads_come_and_go() -> None:
    statistics = CallStatistics()
    together = threading.Barrier(9)

    def count() -> None:
        counted = statistics.of_thread()
        assert statistics.of_thread() is counted
        together.wait()
        for number in range(2000):
            counted.table("clicks").pulled += 1
            counted.calls["push"].add(number)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait()
    while any(thread.is_alive() for thread in threads):
        statistics.total()
    for _ in range(2):
        total = statistics.total()
        assert total.tables["clicks"].pulled == 16_000
        assert sum(total.calls["push"].counts) == 16_000
        assert total.calls["push"].sum == 8 * sum(range(2000))


def test_hot_ids_are_reported(start_servers: Any, token: str) -> None:
    servers = start_servers()
    client = servers.client()
    client.initialize({}, {}, ADAM, [CLICKS])
    for number in range(80):
        client.pull_rows({"clicks": ids(7, 100 + 2 * number, 101 + 2 * number)})
    (table,) = figures(servers, token).tables
    assert [(one.id, one.share) for one in table.hot] == [(7, 1.0)]
