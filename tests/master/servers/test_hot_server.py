"""A parameter server that has much more to do than the others loses buckets to them by itself, and nothing else.

The state of the job, the servers, their streams and their client are real; the clock is played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.master.commands.command import Command
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.servers.rebalancer import Rebalancer
from elasticdl.master.settings import JobSettings
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec, buckets_of
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import ps_pb2

TOKEN = "a token for tests"
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.0})
TABLE = TableSpec(name="t", width=2, initializer=Initializer(kind="zeros"))
IDS = np.arange(4000)
ID_BUCKETS = buckets_of(IDS, BUCKETS)
# Servers look at one push of some, and write down the work of each bucket.
PUSHES = 40


class Played:
    """A master whose decisions reach servers and workers at once."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.state = job.state
        self.stores: dict[int, Store] = {}
        self.servers: dict[str, ParameterServer] = {}
        self.start()

    def start(self) -> None:
        """Servers in all places."""
        wanted = [node for node in self.state.roster.wanted() if node.role == "ps"]
        for node in wanted:
            store = Store(ServerSettings(), number=node.slot, incarnation=f"incarnation of {node.name}")
            store.close(self.state.generation)
            self.stores[node.slot] = store
            server = self.servers[node.name] = ParameterServer(token=TOKEN)
            self.job.do(JoinNode(node=node.name, incarnation=store.incarnation, address=server.address))
        for node in wanted:
            store = self.stores[node.slot]
            store.peers.update_routes(self.routes())
            store.open()
            self.servers[node.name].serve(store)

    def lose_all(self) -> None:
        """The model is lost, and begins again on servers in their places."""
        for node in self.state.roster.alive("ps"):
            self.servers[node.name].stop()
            self.job.end(node.name)
        self.start()

    def routes(self) -> Routes:
        placing = self.state.placing
        return Routes(
            map=placing.map,
            addresses=placing.addresses(),
            incarnations={number: store.incarnation for number, store in self.stores.items()},
        )

    def do(self, command: Command[Any]) -> None:
        self.job.do(command)
        for store in self.stores.values():
            store.peers.update_routes(self.routes())

    def primaries(self, ids: Any) -> list[int]:
        """How many of some ids each server is asked for."""
        owners = np.array(self.state.placing.map.primary)
        asked: list[int] = np.bincount(owners[ID_BUCKETS[ids]], minlength=2).tolist()
        return asked

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


@pytest.fixture(params=[1, 2], ids=["one copy", "two copies"])
def master(request: pytest.FixtureRequest, toy_job: Any) -> Iterator[Played]:
    played = Played(
        toy_job(JobSettings(servers=2, replicas=request.param, workers=1, batch_size=5, shard_size=10))
    )
    yield played
    played.stop()


@pytest.fixture
def open_client(master: Played) -> Iterator[Callable[[], ParameterClient]]:
    """One for the model of now."""
    clients: list[ParameterClient] = []

    def open_client() -> ParameterClient:
        opened = ParameterClient(
            token=TOKEN,
            worker="worker-0",
            generation=master.state.generation,
            routes=master.routes,
            patience_seconds=60,
        )
        clients.append(opened)
        opened.initialize({"w": np.zeros(3, np.float32)}, {}, SGD, [TABLE])
        return opened

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def client(open_client: Callable[[], ParameterClient]) -> ParameterClient:
    return open_client()


def push(client: ParameterClient, ids: Any) -> None:
    rows = {"t": RowGradients(ids=ids, values=-np.ones((len(ids), 2), np.float32))}
    for _ in range(PUSHES):
        client.push({"w": -np.ones(3, np.float32)}, rows=rows, learning_rate=1.0)


def look(
    master: Any,
    *times: float,
    before: Callable[[], None] = lambda: None,
    answered: Callable[[], None] = lambda: None,
) -> list[BucketMap]:
    """At these moments; between them, until nothing moves any more. Returns each map then. `before`: what happens
    before each; `answered`: between the servers' answers and what follows from them.
    """

    class Watched(Coordinator):
        async def status_all(self, *arguments: Any, **more: Any) -> dict[int, ps_pb2.ServerStatusReply]:
            found = await super().status_all(*arguments, **more)
            await asyncio.to_thread(answered)
            return found

    async def run() -> list[BucketMap]:
        coordinator = Watched(TOKEN)
        moving = Rebalancer(master, coordinator, lambda: 0.0)
        maps = []
        try:
            for now in times:
                await asyncio.to_thread(before)
                await moving.look(now)
                while master.state.placing.moving:
                    await moving.look(now)
                maps.append(master.state.placing.map)
        finally:
            await coordinator.close()
        return maps

    return asyncio.run(run())


@pytest.mark.timeout(120)
def test_buckets_of_hot_server_migrate(master: Played, client: ParameterClient) -> None:
    served = np.array(master.state.placing.map.primary) == 0
    hot = IDS[served[ID_BUCKETS]]
    assert master.primaries(hot) == [len(hot), 0]
    # The first look is what the second is compared with; at the next it is not time yet.
    early = look(master, 20.0, 21.0, before=lambda: push(client, hot))
    assert early[0] == early[1]
    assert master.primaries(hot) == [len(hot), 0]
    look(master, 20.0, 40.0, before=lambda: push(client, hot))
    first, second = master.primaries(hot)
    assert abs(first - second) < 0.25 * len(hot), "the work is about the same"
    # All that was there still is, wherever it went, and can be trained.
    push(client, hot)
    rows = client.pull_rows({"t": IDS})["t"]
    wanted = np.where(served[ID_BUCKETS], 5.0 * PUSHES, 0.0)
    np.testing.assert_array_equal(rows, np.stack([wanted, wanted], axis=1))


@pytest.mark.timeout(120)
def test_where_both_have_as_much_to_do_nothing_moves(master: Played, client: ParameterClient) -> None:
    before = master.state.placing.map
    look(master, 20.0, 40.0, before=lambda: push(client, IDS))
    assert master.state.placing.map == before


@pytest.mark.timeout(120)
def test_buckets_stay_after_rebalance_under_same_load(master: Played, client: ParameterClient) -> None:
    hot = IDS[(np.array(master.state.placing.map.primary) == 0)[ID_BUCKETS]]
    before, first, *others = look(master, 20.0, 40.0, 60.0, 80.0, 100.0, before=lambda: push(client, hot))
    assert first.primary != before.primary
    assert others == [first] * 3


@pytest.mark.timeout(120)
def test_load_counted_under_earlier_map_is_ignored(
    master: Played, client: ParameterClient, open_client: Callable[[], ParameterClient]
) -> None:
    """The servers are lost just after they have answered, and those of now have had as much to do as each other."""
    hot = IDS[(np.array(master.state.placing.map.primary) == 0)[ID_BUCKETS]]
    clients = [client]

    def lose_once() -> None:
        if master.state.generation == 1:
            master.lose_all()
            clients.append(open_client())

    def push_to_all_or_one() -> None:
        push(clients[-1], hot if master.state.generation == 1 else IDS)

    first, second = look(master, 20.0, 40.0, before=push_to_all_or_one, answered=lose_once)
    assert master.state.generation == 2
    assert second == first
