"""A batch that some buckets have had from a worker that ended in the middle of its push: the others get it once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.array_bodies import mask_of, pack
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.core.server_errors import ServersUnreachable
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.storage.bucket_store import ServerSettings
from tests.ps.conftest import SGD, Servers

EVERYTHING = np.ones(BUCKETS, np.bool_)
IDS = np.arange(1000, dtype=np.int64)
COUNTERS = {f"counter-{number}": np.zeros(3, np.float32) for number in range(12)}


def test_push_of_applied_buckets_is_noted_and_changes_nothing(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0], sequence=1, applied=EVERYTHING, lease_id=4, position=10, batches=1)
    assert (small.x, small.version) == ([1.0, 2.0], 0)
    assert small.store.master.fence("worker-0", generation=1).last.position == 10


def test_synchronous_push_of_applied_buckets_does_not_count_as_a_gradient(make_store: Any) -> None:
    small = make_store(grads_to_wait=2)
    small.push([1.0, 1.0], worker="worker-1", sequence=1)
    # Computed on any version: it cannot be stale.
    assert small.push([1.0, 1.0], sequence=1, version=-5, applied=EVERYTHING).accepted
    assert small.version == 0
    small.push([1.0, 1.0], worker="worker-2", sequence=1)
    assert small.version == 1


def test_spoiled_batch_is_not_refused_by_buckets_that_have_applied_it(make_store: Any) -> None:
    small = make_store(max_bad_gradients=1)
    assert small.push([0.0, 0.0], sequence=1, applied=EVERYTHING, not_finite="x").refused == 0


@pytest.fixture
def three() -> Iterator[Callable[..., Servers]]:
    started: list[Servers] = []

    def start(settings: ServerSettings) -> Servers:
        started.append(Servers(3, settings))
        return started[-1]

    yield start
    for servers in started:
        servers.close()


@pytest.mark.parametrize("grads_to_wait", [1, 2], ids=["asynchronous", "synchronous"])
@pytest.mark.parametrize("reached", [1, 2])
def test_batch_of_a_dead_worker_is_completed_on_servers_that_lack_it(
    three: Callable[..., Servers], reached: int, grads_to_wait: int
) -> None:
    servers = three(ServerSettings(grads_to_wait=grads_to_wait))
    spec = TableSpec(name="rows", width=2, initializer=Initializer(kind="zeros"))
    gradients = {name: np.full(3, -1.0, np.float32) for name in COUNTERS}
    rows = {"rows": RowGradients(ids=IDS, values=np.full((1000, 2), -1.0, np.float32))}

    def push(client: Any, **fields: Any) -> None:
        client.push(gradients, rows=rows, learning_rate=1.0, versions=client.pull().versions, **fields)

    dead, other = servers.client("worker-0"), servers.client("worker-1")
    for client in (dead, other):
        client.initialize(COUNTERS, {}, SGD, [spec])
    push(dead, lease_id=1, position=10, batches=1)
    push(other, lease_id=2, position=10, batches=1)
    # Of the next batch, only some servers hear before the worker dies.
    reachable = Routes(map=first_map(3, replicas=1), addresses=dict(enumerate(servers.addresses[:reached])))
    dying = servers.client(
        "worker-0", routes=lambda: reachable, last_sequence=dead.last_sequence, patience_seconds=0.1
    )
    dying._buckets, dying._widths = dead._buckets, dead._widths
    with pytest.raises(ServersUnreachable):
        dying.push(
            gradients,
            rows=rows,
            learning_rate=1.0,
            versions=dead.pull().versions,
            lease_id=1,
            position=20,
            batches=2,
        )
    fenced = [store.master.fence("worker-0", generation=1) for store in servers.stores]
    assert [found.last.position for found in fenced] == [20] * reached + [10] * (3 - reached)
    applied = np.logical_or.reduce([found.buckets for found in fenced if found.last.position == 20])
    push(other, lease_id=3, position=20, batches=1, applied=pack(applied))
    if grads_to_wait == 2:
        # All have had four gradients now.
        push(other, lease_id=4, position=30, batches=1)
        expected = 2.0
    else:
        expected = 3.0
    pulled = other.pull()
    assert {name: value.tolist() for name, value in pulled.trainable.items()} == {
        name: [expected] * 3 for name in COUNTERS
    }
    np.testing.assert_array_equal(other.pull_rows({"rows": IDS})["rows"], np.full((1000, 2), expected))
    # They have had equally many updates again.
    assert len(set(pulled.versions.tolist())) == 1


def test_last_batch_of_every_bucket_survives_a_partly_applied_push(three: Callable[..., Servers]) -> None:
    servers = three(ServerSettings())
    client = servers.client("worker-0")
    client.initialize(COUNTERS, {}, SGD)
    some = pack(mask_of(range(0, BUCKETS, 2)))
    client.push(
        {},
        learning_rate=1.0,
        versions=client.pull().versions,
        lease_id=9,
        position=4,
        batches=1,
        applied=some,
    )
    last = [store.master.fence("worker-0", generation=1) for store in servers.stores]
    assert [(found.last.lease_id, found.newer) for found in last] == [(9, [])] * 3
