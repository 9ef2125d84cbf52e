"""The master polls all servers; one that does not answer does not delay the answers of others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.master.servers.server_metrics import ServerFigures, ServerPoller
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings

TOKEN = "a token for tests"


@pytest.fixture
def servers() -> Iterator[list[ParameterServer]]:
    started = []
    for number in range(2):
        store = Store(ServerSettings(), number=number)
        store.close(1)
        store.peers.update_routes(Routes(map=first_map(2, replicas=1)))
        store.open()
        server = ParameterServer(token=TOKEN)
        server.serve(store)
        started.append(server)
    yield started
    for server in started:
        server.stop()


class Master:
    """As much of one as is asked for."""

    def __init__(self, addresses: list[str], outcome: str = "") -> None:
        holders = {
            number: SimpleNamespace(name=f"ps-{number}", address=address)
            for number, address in enumerate(addresses)
        }
        self.state = SimpleNamespace(placing=SimpleNamespace(holders=lambda: holders), outcome=outcome)
        self.figures = ServerFigures()
        self.supervisor = self
        self.answered: dict[str, bool] = {}

    async def note_server_probe(self, answered: dict[str, bool]) -> None:
        self.answered = answered

    def ask(self, times: int = 1) -> list[str]:
        async def ask() -> None:
            coordinator = Coordinator(TOKEN)
            asking = ServerPoller(self, coordinator)  # type: ignore[arg-type]
            try:
                await asyncio.gather(*(asking.ask() for _ in range(times)))
            finally:
                await coordinator.close()

        asyncio.run(ask())
        return [server.name for server in self.figures.reports()]


def test_all_are_asked(servers: list[Any]) -> None:
    assert Master([server.address for server in servers]).ask(times=3) == ["ps-0", "ps-1"]


def test_one_that_does_not_answer(servers: list[Any]) -> None:
    master = Master([servers[0].address, "127.0.0.1:1"])
    assert master.ask() == ["ps-0"]
    assert master.answered == {"ps-0": True, "ps-1": False}


def test_one_that_has_no_time(servers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be reading its rows for minutes, and is there all the same."""
    monkeypatch.setattr("elasticdl.ps.server.parameter_server._BUSY_SECONDS", 0.01)
    master = Master([server.address for server in servers])
    with servers[1]._store.state.lock:
        assert master.ask() == ["ps-0"]
    assert master.answered == {"ps-0": True, "ps-1": True}


def test_the_last_word_stays(servers: list[Any]) -> None:
    master = Master([server.address for server in servers])
    master.ask()
    before = master.figures.reports()
    master.state.outcome = "succeeded"
    servers[0].stop()
    assert master.ask() == ["ps-0", "ps-1"]
    assert master.figures.reports() == before


def test_a_job_without_servers() -> None:
    assert Master([]).ask() == []
