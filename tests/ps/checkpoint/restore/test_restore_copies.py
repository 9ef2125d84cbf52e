"""A generation begins with a checkpoint: every copy of a bucket has it, also where servers were there before all others
had joined and there was a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, file_name, write_manifest
from elasticdl.ps.core.array_bodies import unpack
from elasticdl.ps.core.buckets import BUCKETS, BucketMap, first_map
from elasticdl.ps.core.server_errors import NotReady
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec, buckets_of
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.placement_planner import promote
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.generations import Generations
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import master_pb2, ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
TABLE = TableSpec(name="users", width=4)
IDS = np.arange(300)
SAVED = {name: np.full(size, size, np.float32) for name, size in (("a", 50), ("b", 40), ("c", 5), ("d", 3))}
# As a worker draws them that does not know of the checkpoint.
DRAWN = {name: np.zeros_like(value) for name, value in SAVED.items()}


@pytest.fixture
def checkpoint(start_servers: Any, tmp_path: Path) -> tuple[Path, Array]:
    """What a job with one server has saved, and the rows in it."""
    servers = start_servers(1)
    client = servers.client()
    client.initialize(SAVED, {}, SGD, [TABLE])
    rows = {"users": RowGradients(ids=IDS, values=np.ones((len(IDS), 4), np.float32))}
    client.push({}, rows=rows, learning_rate=1.0)
    (store,) = servers.stores
    folder = tmp_path / "version-1"
    folder.mkdir()
    name = file_name(0, 1)
    store.master.freeze("barrier", generation=1)
    written = store.master.save("barrier", folder / name)
    file = SavedFile(name=name, bytes=written.bytes, crc32=written.crc32)
    write_manifest(folder, Manifest(step=1, files=(file,)), None)
    return folder, client.pull_rows({"users": IDS})["users"]


class Cluster:
    """Servers behind real ports, with one directive at a time."""

    def __init__(self, count: int, token: str) -> None:
        self.stores = [
            Store(ServerSettings(), number=number, incarnation=f"ps-{number}") for number in range(count)
        ]
        self.generations = [Generations(store) for store in self.stores]
        self.servers = [ParameterServer(token=token) for _ in range(count)]
        for server, store in zip(self.servers, self.stores, strict=True):
            server.serve(store)
        self.map = first_map(count)

    def tell(self, number: int, *, generation: int = 1, restore_from: Path, mapped: bool) -> None:
        """What the master wants of a server, before all have joined and after."""
        directive = master_pb2.Directive(generation=generation, restore_from=str(restore_from))
        if mapped:
            directive.ps_map.CopyFrom(self.map.to_wire())
            directive.ps_addresses.extend(server.address for server in self.servers)
            directive.ps_incarnations.extend(store.incarnation for store in self.stores)
        self.generations[number].apply_directive(directive)

    def routes(self) -> Routes:
        return Routes(
            map=self.map, addresses={number: server.address for number, server in enumerate(self.servers)}
        )

    def kill(self, number: int) -> None:
        self.servers[number].stop()
        promoted = promote(self.map, {number})
        assert promoted is not None
        self.map = promoted
        for store in self.stores:
            if store.number != number:
                store.peers.update_routes(self.routes())


@pytest.fixture
def make_cluster(token: str) -> Iterator[Any]:
    made: list[Cluster] = []

    def make(count: int) -> Cluster:
        made.append(Cluster(count, token))
        return made[-1]

    yield make
    for cluster in made:
        for server in cluster.servers:
            server.stop()


def copies(store: Store) -> tuple[dict[str, Array], Array]:
    """All that a server has all of, primary or backup: of rows, those that are elsewhere are NaN."""
    mask = store.state.roles.complete
    rows = np.full((len(IDS), TABLE.width), np.nan, np.float32)
    there = mask[buckets_of(IDS, BUCKETS)]
    found = np.empty((int(there.sum()), TABLE.width), np.float32)
    store.state.bucket_store.tables.gather_into("users", IDS[there], found)
    rows[there] = found
    return store.state.bucket_store.values(mask)[0], rows


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("killed", [0, 1])
def test_both_copies_are_those_of_the_checkpoint(
    make_cluster: Any, start_servers: Any, checkpoint: tuple[Path, Array], count: int, killed: int
) -> None:
    folder, rows = checkpoint
    cluster = make_cluster(count)
    # The last one to join finds a map; the others were there before.
    for number in range(count - 1):
        cluster.tell(number, restore_from=folder, mapped=False)
    for number in range(count):
        cluster.tell(number, restore_from=folder, mapped=True)
    client = start_servers(1).client(routes=cluster.routes)
    assert client.initialize(DRAWN, {}, SGD, [TABLE]) is True
    held = 0
    for store in cluster.stores:
        dense, there = copies(store)
        for name, value in dense.items():
            np.testing.assert_array_equal(value, SAVED[name], err_msg=f"{name} on {store.number}")
        held += len(dense)
        mine = ~np.isnan(there[:, 0])
        np.testing.assert_array_equal(there[mine], rows[mine])
    assert held == 2 * len(SAVED)
    cluster.kill(killed)
    for name, value in client.pull().trainable.items():
        np.testing.assert_array_equal(value, SAVED[name], err_msg=name)
    np.testing.assert_array_equal(client.pull_rows({"users": IDS})["users"], rows)


def test_the_next_generation_waits_for_its_map_too(
    make_cluster: Any, start_servers: Any, checkpoint: tuple[Path, Array]
) -> None:
    """Of servers that stay while others are lost: they are there before the replacements have joined."""
    folder, _ = checkpoint
    cluster = make_cluster(3)
    for number in range(3):
        cluster.tell(number, restore_from=folder, mapped=True)
    for number in range(3):
        cluster.tell(number, generation=2, restore_from=folder, mapped=False)
        assert not cluster.stores[number].master.status().ready
        with pytest.raises(NotReady):
            cluster.stores[number].workers.pull(lambda pulled: pulled, generation=2)
    cluster.map = replace(cluster.map, version=2)
    for number in range(3):
        cluster.tell(number, generation=2, restore_from=folder, mapped=True)
    client = start_servers(1).client(routes=cluster.routes, generation=2)
    assert client.initialize(DRAWN, {}, SGD, [TABLE]) is True
    for store in cluster.stores:
        for name, value in copies(store)[0].items():
            np.testing.assert_array_equal(value, SAVED[name], err_msg=f"{name} on {store.number}")


def test_checkpoint_is_restored_once_per_generation(
    make_cluster: Any, start_servers: Any, checkpoint: tuple[Path, Array]
) -> None:
    cluster = make_cluster(1)
    folder, _ = checkpoint
    cluster.tell(0, restore_from=folder, mapped=True)
    client = start_servers(1).client(routes=cluster.routes)
    client.initialize(DRAWN, {}, SGD, [TABLE])
    client.push({"c": np.ones(5, np.float32)}, learning_rate=1.0)
    for mapped in (False, True):
        cluster.tell(0, restore_from=folder, mapped=mapped)
    np.testing.assert_array_equal(client.pull().trainable["c"], SAVED["c"] - 1)
    # A master that has forgotten the last of what it knew says nothing that counts.
    cluster.tell(0, generation=0, restore_from=folder, mapped=True)
    np.testing.assert_array_equal(client.pull().trainable["c"], SAVED["c"] - 1)


def test_bucket_in_handover_is_restored(checkpoint: tuple[Path, Array]) -> None:
    """A server may have missed the first map of a generation."""
    folder, _ = checkpoint
    handed = BucketMap(
        version=2,
        primary=(1,) * BUCKETS,
        backup=(0,) * BUCKETS,
        handover=dict.fromkeys(range(BUCKETS), 0),
    )
    stores = [Store(ServerSettings(), number=number) for number in (0, 1)]
    directive = master_pb2.Directive(generation=1, restore_from=str(folder), ps_map=handed.to_wire())
    for store in stores:
        Generations(store).apply_directive(directive)
    (outbox,) = stores[0].state.peers.outboxes.values()
    pending = outbox.after(0)
    assert pending is not None
    entry = pending.entry
    carry_out = call_codec.decode_entry(entry, memoryview(b""))
    stores[1].peers.receive(0, "", 1, entry, unpack(entry.buckets), carry_out)
    pulled = stores[1].workers.pull(lambda pulled: pulled, generation=1)
    assert pulled.initialized
    for name, value in pulled.trainable.items():
        np.testing.assert_array_equal(value, SAVED[name], err_msg=name)
