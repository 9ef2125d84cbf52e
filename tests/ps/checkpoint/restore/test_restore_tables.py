"""Tables in checkpoints: saved by some servers, restored onto others, as if training had never stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.resharding import read_share
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.core.server_errors import NotReady
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.embedding.unique_ids import unique
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.wire import ps_pb2

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras")
ADAM_CHANGED = ps_pb2.OptimizerConfig(name="adam", flavor="keras", options={"beta_1": 0.5})


class Momentum(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] = 0.9 * slots["sum"] + gradient
        return value - learning_rate / np.sqrt(step) * slots["sum"]


OWN = to_config(Momentum())
TABLES = [TableSpec(name="users", width=4), TableSpec(name="items", width=3, admit_after=2, expire_after=50)]
DENSE = {"a": np.zeros(10, np.float32), "b": np.ones(4, np.float32)}


def train(client: Any, seeds: range) -> None:
    for seed in seeds:
        chance = np.random.default_rng(seed)
        rows = {}
        for spec in TABLES:
            ids, _ = unique(chance.integers(0, 300, 100))
            values = chance.normal(size=(len(ids), spec.width)).astype(np.float32)
            rows[spec.name] = RowGradients(ids=ids, values=values)
        gradients = {n: chance.normal(size=a.shape).astype(np.float32) for n, a in DENSE.items()}
        client.push(gradients, rows=rows, learning_rate=0.1, versions=client.pull().versions)


def values(client: Any) -> dict[str, Array]:
    found = client.pull_rows({spec.name: np.arange(320) for spec in TABLES})
    return {**found, **client.pull().trainable}


def save(servers: Any, folder: Path) -> list[Path]:
    paths = []
    for number, store in enumerate(servers.stores):
        store.master.freeze("barrier", generation=1)
        paths.append(folder / f"{number}.edl")
        store.master.save("barrier", paths[-1])
        store.master.release("barrier")
    return paths


def restore(servers: Any, paths: list[Path]) -> None:
    count = len(servers.stores)
    for number, store in enumerate(servers.stores):
        made = first_map(count, replicas=1)
        store.close(1)
        store.peers.update_routes(Routes(map=made))
        snapshot, buckets = read_share(paths, made.primaries_of(number))
        store.open(snapshot, buckets=buckets, tables=SavedTables([paths]))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (3, 1)])
@pytest.mark.parametrize("waits", [1, 4])
@pytest.mark.parametrize("optimizer", [ADAM, OWN], ids=["adam", "own"])
def test_as_if_never_stopped(
    start_servers: Any, tmp_path: Path, before: int, after: int, waits: int, optimizer: Any
) -> None:
    settings = {"grads_to_wait": waits, "asynchronous": waits == 1}
    stopped = start_servers(before, **settings)
    client = stopped.client()
    client.initialize(DENSE, {}, optimizer, TABLES)
    train(client, range(10))
    paths = save(stopped, tmp_path)
    restored = start_servers(after, **settings)
    restore(restored, paths)
    again = restored.client()
    assert again.initialize(DENSE, {}, optimizer, TABLES) is True
    train(again, range(10, 20))
    straight = start_servers(1, **settings).client()
    straight.initialize(DENSE, {}, optimizer, TABLES)
    train(straight, range(20))
    expected = values(straight)
    for name, found in values(again).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


@pytest.mark.parametrize("optimizer", [ADAM, OWN], ids=["adam", "own"])
def test_another_optimizer_keeps_the_rows_and_starts_with_new_slots(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Any
) -> None:
    stopped = start_servers(2)
    client = stopped.client()
    client.initialize(DENSE, {}, optimizer, TABLES)
    train(client, range(10))
    before = values(client)
    # The checkpoint may be of an optimizer that does not exist any more.
    monkeypatch.delattr(sys.modules[__name__], "Momentum")
    restored = start_servers(1)
    restore(restored, save(stopped, tmp_path))
    again = restored.client()
    again.initialize(DENSE, {}, ps_pb2.OptimizerConfig(name="adagrad", flavor="keras"), TABLES)
    for name, found in values(again).items():
        np.testing.assert_array_equal(found, before[name], err_msg=name)
    train(again, range(10, 12))


def test_the_same_optimizer_must_be_there(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize(DENSE, {}, OWN, TABLES)
    train(client, range(2))
    monkeypatch.delattr(sys.modules[__name__], "Momentum")
    restored = start_servers(1)
    restore(restored, save(stopped, tmp_path))
    with pytest.raises(UserError, match=r"Momentum in .* is no optimizer"):
        restored.client().initialize(DENSE, {}, OWN, TABLES)


@pytest.mark.parametrize("known", [True, False], ids=["its optimizer", "another"])
def test_restored_table_missing_in_model_is_refused(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Forgetting what was learned is not for a server to decide."""
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize(DENSE, {}, OWN, TABLES)
    train(client, range(2))
    files = save(stopped, tmp_path)
    if not known:
        monkeypatch.delattr(sys.modules[__name__], "Momentum")
    restored = start_servers(1)
    restore(restored, files)
    name = TABLES[1].name
    with pytest.raises(UserError, match=f"The table {name} on the parameter servers is not in this model"):
        restored.client().initialize(DENSE, {}, OWN if known else ADAM, TABLES[:1])


def test_a_table_that_is_new_in_the_model_starts_empty(start_servers: Any, tmp_path: Path) -> None:
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize(DENSE, {}, ADAM, TABLES[:1])
    client.push(
        {},
        rows={"users": RowGradients(ids=np.arange(5), values=np.ones((5, 4), np.float32))},
        learning_rate=0.1,
    )
    restored = start_servers(1)
    restore(restored, save(stopped, tmp_path))
    again = restored.client()
    again.initialize(DENSE, {}, ADAM, TABLES)
    train(again, range(3))
    assert restored.stores[0].master.status().rows > 5


@pytest.mark.parametrize("known", [True, False], ids=["other options", "another"])
def test_restored_model_has_no_snapshot_before_optimizer_is_known(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """It could lack rows, and would be void as soon as the optimizer is another."""
    made_with, trained_with = (ADAM, ADAM_CHANGED) if known else (OWN, ADAM)
    stopped = start_servers(2)
    client = stopped.client()
    client.initialize(DENSE, {}, made_with, TABLES)
    train(client, range(4))
    before = values(client)
    paths = save(stopped, tmp_path)
    monkeypatch.delattr(sys.modules[__name__], "Momentum")
    restored = start_servers(2)
    restore(restored, paths)
    for store in restored.stores:
        for ask in (store.master.flush, lambda of=store, **given: of.master.freeze("early", **given)):
            with pytest.raises(NotReady, match="has not got the optimizer from a worker yet"):
                ask(generation=1)
    again = restored.client()
    again.initialize(DENSE, {}, trained_with, TABLES)
    for store in restored.stores:
        store.master.freeze("barrier", generation=1, flush=True)
    assert again.initialize(DENSE, {}, trained_with, TABLES)
    frozen = again.pull_rows({spec.name: np.arange(320) for spec in TABLES}, frozen="barrier")
    (tmp_path / "second").mkdir()
    third = start_servers(1)
    restore(third, save(restored, tmp_path / "second"))
    last = third.client()
    last.initialize(DENSE, {}, trained_with, TABLES)
    for name, found in values(last).items():
        np.testing.assert_array_equal(found, before[name], err_msg=name)
        np.testing.assert_array_equal(frozen.get(name, found), found, err_msg=name)


def test_no_copy_is_made_of_rows_that_are_still_to_be_read(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer of the checkpoint is gone: its tables wait for a worker that brings another."""
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize(DENSE, {}, OWN, TABLES)
    train(client, range(4))
    paths = save(stopped, tmp_path)
    monkeypatch.delattr(sys.modules[__name__], "Momentum")
    restored = start_servers(1)
    restore(restored, paths)
    (store,) = restored.stores
    alone = first_map(1, replicas=1)
    migrating = replace(alone, version=2, migrating={3: 1}, migrating_since={3: 2})
    store.peers.update_routes(Routes(map=migrating, addresses={1: "nowhere:1"}))
    assert store.state.peers.outboxes == {}
    restored.client().initialize(DENSE, {}, ADAM, TABLES)
    (outbox,) = store.state.peers.outboxes.values()
    entry = outbox.after(0).entry
    assert entry.HasField("fill")
    assert set(json.loads(entry.fill.attributes)["tables"]) == {"users", "items"}


def push_users(client: Any, ids: range) -> None:
    rows = {"users": RowGradients(ids=np.array(ids), values=np.ones((len(ids), 4), np.float32))}
    client.push({}, rows=rows, learning_rate=0.1)


@pytest.mark.parametrize("servers", [1, 2])
def test_rows_that_begin_to_expire_are_new_then(start_servers: Any, tmp_path: Path, servers: int) -> None:
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize({}, {}, ADAM, TABLES[:1])
    for _ in range(20):
        push_users(client, range(100))
    restored = start_servers(servers)
    restore(restored, save(stopped, tmp_path))
    again = restored.client()
    again.initialize({}, {}, ADAM, [replace(TABLES[0], expire_after=8)])
    for _ in range(8):
        push_users(again, range(10))
    assert sum(store.master.status().rows for store in restored.stores) == 100
    for _ in range(8):
        push_users(again, range(10))
    assert sum(store.master.status().rows for store in restored.stores) == 10


def test_a_workers_own_tables_are_as_old_on_servers(start_servers: Any, tmp_path: Path) -> None:
    """It counts the steps of its tables by itself: from 0 on, where it began with a model that was trained before."""
    spec = replace(TABLES[0], expire_after=8)
    own = LocalTables([spec], optimizer=make_optimizer(ADAM))
    rows = RowGradients(ids=np.arange(100), values=np.ones((100, 4), np.float32))
    for _ in range(5):
        own.apply({"users": rows}, learning_rate=0.1)
    with ArrayFileWriter(tmp_path / "worker.edl") as file:
        file.finish(own.write(file))
    (store,) = (servers := start_servers(1)).stores
    store.close(1)
    snapshot, buckets = read_share([tmp_path / "worker.edl"], range(256))
    attributes = {"version": 1000, **snapshot.attributes}
    store.open(
        replace(snapshot, attributes=attributes),
        buckets=buckets,
        tables=SavedTables([[tmp_path / "worker.edl"]]),
    )
    client = servers.client()
    client.initialize({}, {}, ADAM, [spec])
    for _ in range(8):
        push_users(client, range(10))
    assert store.master.status().rows == 100
    for _ in range(8):
        push_users(client, range(10))
    assert store.master.status().rows == 10


def test_restored_table_may_have_other_admission(start_servers: Any, tmp_path: Path) -> None:
    stopped = start_servers(1)
    client = stopped.client()
    client.initialize({}, {}, ADAM, [replace(TABLES[0], admit_after=3)])
    push_users(client, range(100))
    restored = start_servers(1)
    restore(restored, save(stopped, tmp_path))
    again = restored.client()
    again.initialize({}, {}, ADAM, [replace(TABLES[0], admit_after=2)])
    push_users(again, range(50, 150))
    assert restored.stores[0].master.status().rows == 50
    with pytest.raises(UserError, match="admit_after 2 on the servers, and is asked for with 1"):
        restored.client("worker-1").initialize({}, {}, ADAM, TABLES[:1])
