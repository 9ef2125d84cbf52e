"""Tables on servers, through real ports: the same rows and updates as in one process, on any number of servers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.ps.embedding.unique_ids import unique
from elasticdl.wire import ps_pb2

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
USERS = TableSpec(name="users", width=4, seed=3)
ITEMS = TableSpec(name="items", width=7, initializer=Initializer(kind="normal"))
BOTH = [USERS, ITEMS]


def batch(seed: int) -> dict[str, RowGradients]:
    chance = np.random.default_rng(seed)
    found = {}
    for spec in BOTH:
        ids, _ = unique(chance.integers(-(1 << 63), 1 << 63, 50) // 10**17)
        values = chance.normal(size=(len(ids), spec.width)).astype(np.float32)
        found[spec.name] = RowGradients(ids=ids, values=values)
    return found


def ids_of(rows: dict[str, RowGradients]) -> dict[str, Array]:
    return {name: given.ids for name, given in rows.items()}


class Alone:
    """The same in one process."""

    def __init__(self) -> None:
        optimizer = make_optimizer(ADAGRAD)
        self.tables = {spec.name: Table(spec, optimizer, buckets=256) for spec in BOTH}

    def push(self, rows: dict[str, RowGradients]) -> None:
        for name, given in rows.items():
            self.tables[name].update(given.ids, given.values, learning_rate=0.1)

    def check(self, pulled: dict[str, Array], wanted: dict[str, Array]) -> None:
        assert pulled.keys() == wanted.keys()
        for name, ids in wanted.items():
            np.testing.assert_array_equal(pulled[name], self.tables[name].gather(ids, create=False))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_as_tables_alone(start_servers: Any, count: int) -> None:
    client = start_servers(count).client()
    assert client.initialize({"w": np.zeros(3, np.float32)}, {}, ADAGRAD, BOTH) is False
    alone = Alone()
    for seed in range(20):
        rows = batch(seed)
        alone.check(client.pull_rows(ids_of(rows)), ids_of(rows))
        client.push({"w": np.ones(3, np.float32)}, rows=rows, learning_rate=0.1)
        alone.push(rows)
        alone.check(client.pull_rows(ids_of(rows)), ids_of(rows))


@pytest.mark.parametrize("count", [1, 2])
def test_ids_in_any_order(start_servers: Any, count: int) -> None:
    client = start_servers(count).client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    alone = Alone()
    chance = np.random.default_rng(5)
    ids = chance.permutation(1000)
    values = chance.normal(size=(1000, 4)).astype(np.float32)
    client.push({}, rows={"users": RowGradients(ids=ids, values=values)}, learning_rate=0.1)
    alone.push({"users": RowGradients(ids=ids, values=values)})
    wanted = {"users": chance.permutation(1200), "items": np.arange(0)}
    alone.check(client.pull_rows(wanted), wanted)


@pytest.mark.parametrize(("transfer", "off"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_rows_may_travel_in_half_the_size(start_servers: Any, transfer: str, off: float) -> None:
    client = start_servers(2).client(transfer=transfer)
    client.initialize({}, {}, ADAGRAD, BOTH)
    alone = Alone()
    rows = batch(1)
    client.push({}, rows=rows, learning_rate=0.1)
    alone.push(rows)
    for name, pulled in client.pull_rows(ids_of(rows)).items():
        assert pulled.dtype == np.float32
        expected = alone.tables[name].gather(rows[name].ids)
        np.testing.assert_allclose(pulled, expected, atol=off)


def test_an_id_that_was_never_trained_takes_no_memory(start_servers: Any) -> None:
    servers = start_servers(1)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    client.pull_rows({"users": np.arange(1000)})
    assert servers.stores[0].master.status().rows == 0
    client.push({}, rows=batch(1), learning_rate=0.1)
    assert servers.stores[0].master.status().rows == sum(len(given) for given in batch(1).values())


def test_rows_are_pulled_while_others_are_pushed(start_servers: Any) -> None:
    client = start_servers(2).client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    alone = Alone()
    over = threading.Event()
    failures: list[BaseException] = []

    def pull() -> None:
        try:
            while not over.is_set():
                client.pull_rows(ids_of(batch(3)))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=pull) for _ in range(2)]
    for thread in threads:
        thread.start()
    for seed in range(40):
        client.push({}, rows=batch(seed), learning_rate=0.1)
        alone.push(batch(seed))
    over.set()
    for thread in threads:
        thread.join()
    assert not failures
    alone.check(client.pull_rows(ids_of(batch(3))), ids_of(batch(3)))


def test_snapshot_of_rows_stays_unchanged(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    alone = Alone()
    client.push({}, rows=batch(1), learning_rate=0.1)
    alone.push(batch(1))
    for store in servers.stores:
        store.master.freeze("eval", generation=1)
    client.push({}, rows=batch(1), learning_rate=0.1)
    wanted = ids_of(batch(1))
    alone.check(client.pull_rows(wanted, frozen="eval"), wanted)
    alone.push(batch(1))
    alone.check(client.pull_rows(wanted), wanted)
    for store in servers.stores:
        store.master.release("eval")
    with pytest.raises(Exception, match="no snapshot"):
        client.pull_rows(wanted, frozen="eval")


def test_synchronous_training_applies_the_mean(start_servers: Any) -> None:
    servers = start_servers(2, grads_to_wait=2, asynchronous=False)
    first, second = servers.client("worker-0"), servers.client("worker-1")
    for client in (first, second):
        client.initialize({}, {}, ADAGRAD, BOTH)
    ids = np.arange(40)
    start = first.pull_rows({"users": ids})["users"]
    one, other = (np.full((40, 4), size, np.float32) for size in (1.0, 3.0))
    versions = first.pull().versions
    first.push({}, rows={"users": RowGradients(ids=ids, values=one)}, learning_rate=0.1, versions=versions)
    np.testing.assert_array_equal(first.pull_rows({"users": ids})["users"], start)
    second.push({}, rows={"users": RowGradients(ids=ids, values=other)}, learning_rate=0.1, versions=versions)
    alone = Alone()
    alone.push({"users": RowGradients(ids=ids, values=np.full((40, 4), 2.0, np.float32))})
    alone.check(second.pull_rows({"users": ids}), {"users": ids})


# -- what cannot be done -----------------------------------------------------------------------------------------------


def test_gradients_that_are_not_finite_change_nothing_and_are_counted(start_servers: Any) -> None:
    servers = start_servers(1)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    rows = batch(1)
    rows["items"].values[3, 2] = np.nan
    with pytest.raises(UserError, match="The gradient of the table items is not finite"):
        client.push({}, rows=rows, learning_rate=0.1)
    status = servers.stores[0].master.status()
    assert (status.rows, status.pushes, status.not_finite) == (0, 0, 1)
    client.push({}, rows=batch(2), learning_rate=0.1)
    assert servers.stores[0].master.status().pushes == 1


def test_of_two_servers_neither_applies_what_is_not_finite(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    rows = batch(1)
    rows["items"].values[3, 2] = np.inf
    with pytest.raises(UserError, match="not finite"):
        client.push({}, rows=rows, learning_rate=0.1)
    assert [store.master.status().pushes for store in servers.stores] == [0, 0]


@pytest.mark.parametrize(
    ("name", "ids", "shape", "message"),
    [
        ("users", [1, 2], (2, 5), r"has shape \[2, 5\] for 2 ids; its rows have 4 numbers"),
        ("users", [1, 2], (3, 4), r"has shape \[3, 4\] for 2 ids"),
        ("users", np.array([1 << 63, 2], np.uint64), (2, 4), "outside of int64"),
        ("users", [0.5, 2], (2, 4), "must be whole numbers"),
        ("people", [1, 2], (2, 4), "no table people"),
    ],
)
def test_gradients_that_do_not_fit(
    start_servers: Any, name: str, ids: Any, shape: tuple[int, int], message: str
) -> None:
    client = start_servers(1).client()
    client.initialize({}, {}, ADAGRAD, BOTH)
    given = RowGradients(ids=ids, values=np.ones(shape, np.float32))
    with pytest.raises(UserError, match=message):
        client.push({}, rows={name: given}, learning_rate=0.1)


def test_a_table_asked_for_otherwise(start_servers: Any) -> None:
    servers = start_servers(1)
    servers.client("worker-0").initialize({}, {}, ADAGRAD, BOTH)
    wider = TableSpec(name="users", width=5, seed=3)
    with pytest.raises(UserError, match="users has width 4 on the servers, and is asked for with 5"):
        servers.client("worker-1").initialize({}, {}, ADAGRAD, [wider, ITEMS])
    drawn = TableSpec(name="items", width=7, initializer=Initializer(kind="normal", options={"stddev": 0.5}))
    with pytest.raises(UserError, match=r"has initializer normal on .* with normal, stddev=0\.5\.") as raised:
        servers.client("worker-1").initialize({}, {}, ADAGRAD, [USERS, drawn])
    assert "the same model" in raised.value.hint


def test_two_tables_of_one_name(start_servers: Any) -> None:
    with pytest.raises(UserError, match="Two tables of the model are called users"):
        start_servers(1).client().initialize({}, {}, ADAGRAD, [USERS, TableSpec(name="users", width=5)])


def test_a_full_server_refuses_new_rows_and_serves_on(start_servers: Any) -> None:
    servers = start_servers(1, memory_limit=1 << 20)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, [USERS])

    def push(ids: Array) -> None:
        values = np.ones((len(ids), 4), np.float32)
        client.push({}, rows={"users": RowGradients(ids=ids, values=values)}, learning_rate=0.1)

    push(np.arange(1000))
    with pytest.raises(UserError, match=r"cannot take 999,000 new rows.*of 1,048,576 bytes are in use"):
        push(np.arange(1_000_000))
    before = client.pull_rows({"users": np.arange(1000)})["users"]
    push(np.arange(1000))
    assert not np.array_equal(client.pull_rows({"users": np.arange(1000)})["users"], before)
    assert servers.stores[0].master.status().rows == 1000


def test_rows_without_updates_expire(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, [TableSpec(name="users", width=4, expire_after=8)])

    def push(ids: Array) -> None:
        values = np.ones((len(ids), 4), np.float32)
        client.push({}, rows={"users": RowGradients(ids=ids, values=values)}, learning_rate=0.1)

    push(np.arange(100))
    for _ in range(20):
        push(np.arange(10))
    assert sum(store.master.status().rows for store in servers.stores) == 10


def test_rows_are_admitted_with_the_push_that_makes_it_enough(start_servers: Any) -> None:
    servers = start_servers(2)
    client = servers.client()
    client.initialize({}, {}, ADAGRAD, [TableSpec(name="users", width=4, admit_after=3)])
    values = np.ones((50, 4), np.float32)
    counts = []
    for _ in range(3):
        client.push({}, rows={"users": RowGradients(ids=np.arange(50), values=values)}, learning_rate=0.1)
        counts.append(sum(store.master.status().rows for store in servers.stores))
    assert counts == [0, 0, 50]


@pytest.mark.parametrize("count", [1, 3])
def test_all_rows_of_a_table(start_servers: Any, count: int) -> None:
    client = start_servers(count).client()
    client.initialize({"w": np.zeros(3, np.float32)}, {}, ADAGRAD, BOTH)
    assert list(client.table_rows("users")) == []
    alone = Alone()
    for seed in range(4):
        rows = batch(seed)
        alone.push(rows)
        client.push({}, rows=rows, learning_rate=0.1, lease_id=1, position=seed, batches=seed)
    for spec in BOTH:
        parts = list(client.table_rows(spec.name))
        ids = np.concatenate([part for part, _ in parts])
        values = np.concatenate([part for _, part in parts])
        assert len(np.unique(ids)) == len(ids) == len(alone.tables[spec.name])
        alone.check({spec.name: values}, {spec.name: ids})
    with pytest.raises(UserError, match="itmes"):
        list(client.table_rows("itmes"))
