"""Rows are read without the server's lock. Whatever happens meanwhile: a row that is not reported as moved is right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS, BucketMap, first_map
from elasticdl.ps.core.server_errors import NotFound, NotReady, StaleGeneration
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.table import TableSpec, buckets_of
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.ps.storage.table_set import RowPart, Tables
from elasticdl.wire import ps_pb2

IDS = np.arange(1000)
ALL = np.ones(BUCKETS, np.bool_)
# The first half goes to another server.
GOING = np.arange(BUCKETS) < BUCKETS // 2
INCARNATIONS = {0: "a", 1: "b"}


class Served:
    """A server that holds everything, and can hand some of it over and forget it."""

    def __init__(self) -> None:
        # Set before the server gets its buckets back, which are empty then.
        self.is_back = False
        self.map = first_map(1, replicas=1)
        self.store = Store(ServerSettings(), number=0, incarnation="a")
        self.store.close(1)
        self.update_routes(self.map)
        self.store.open()
        spec = TableSpec(name="t", width=2, initializer=Initializer(kind="zeros"))
        sgd = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.0})
        self.store.workers.initialize(
            InitialModel(trainable={}, state={}, optimizer=sgd, tables=[spec]), generation=1
        )
        rows = {"t": RowPart(ids=IDS, values=-np.ones((len(IDS), 2), np.float32))}
        self.store.workers.push(
            Push(
                worker="w",
                sequence=1,
                version=0,
                learning_rate=1.0,
                gradients={},
                rows=rows,
                generation=1,
            )
        )

    def update_routes(self, wanted: BucketMap) -> None:
        self.map = wanted
        self.store.peers.update_routes(
            Routes(map=wanted, addresses={0: "", 1: ""}, incarnations=INCARNATIONS)
        )

    def hand_over(self) -> None:
        primary = tuple(1 if going else 0 for going in GOING)
        handover = dict.fromkeys(np.flatnonzero(GOING).tolist(), 0)
        self.update_routes(
            replace(self.map, version=self.map.version + 1, primary=primary, handover=handover)
        )
        self.update_routes(replace(self.map, version=self.map.version + 1, handover={}))

    def hand_over_and_get_back(self) -> None:
        self.hand_over()
        self.is_back = True
        self.update_routes(replace(self.map, version=self.map.version + 1, primary=(0,) * BUCKETS))

    def close(self) -> None:
        self.store.close(2)
        self.store.open()

    def pull(self, frozen: str = "") -> tuple[Array, Any]:
        out = np.empty((len(IDS), 2), np.float32)
        moved = self.store.workers.pull_rows([("t", IDS)], lambda sizes: [out], generation=1, frozen=frozen)
        return out, moved

    def export(self) -> tuple[Any, Any, Any]:
        return self.store.workers.export_rows("t", generation=1, buckets=ALL)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Something that happens after the server has looked what it holds, and before it reads."""

    def arrange(happens: Callable[[], None]) -> None:
        for name in ("export", "gather_into"):
            read = getattr(Tables, name)

            def later(*arguments: Any, read: Any = read) -> Any:
                happens()
                return read(*arguments)

            monkeypatch.setattr(Tables, name, later)

    return arrange


@pytest.mark.parametrize("event", ["hand_over", "hand_over_and_get_back"])
def test_handed_over_buckets_are_reported_as_moved(meanwhile: Any, event: str) -> None:
    served = Served()
    meanwhile(getattr(served, event))
    ids, values, moved = served.export()
    np.testing.assert_array_equal(moved, GOING)
    # All of the others, and nothing of those that are asked for elsewhere.
    staying = IDS[~GOING[buckets_of(IDS, BUCKETS)]]
    np.testing.assert_array_equal(np.sort(ids), staying)
    np.testing.assert_array_equal(values, np.ones((len(staying), 2), np.float32))


@pytest.mark.parametrize("event", ["hand_over", "hand_over_and_get_back"])
def test_lookups_too(meanwhile: Any, event: str) -> None:
    served = Served()
    meanwhile(getattr(served, event))
    _, moved = served.pull()
    np.testing.assert_array_equal(moved, GOING)


def test_a_map_that_changes_nothing_here(meanwhile: Any) -> None:
    served = Served()
    meanwhile(lambda: served.update_routes(replace(served.map, version=served.map.version + 1)))
    out, moved = served.pull()
    assert not moved.any()
    np.testing.assert_array_equal(out, np.ones_like(out))
    ids, _, moved = served.export()
    assert not moved.any()
    assert len(ids) == len(IDS)


def test_a_new_generation(meanwhile: Any) -> None:
    served = Served()
    meanwhile(served.close)
    with pytest.raises(StaleGeneration):
        served.pull()
    served = Served()
    meanwhile(served.close)
    with pytest.raises(StaleGeneration):
        served.export()


def test_read_of_a_released_snapshot(meanwhile: Any) -> None:
    served = Served()
    served.store.master.freeze("barrier", generation=1)
    served.pull(frozen="barrier")
    meanwhile(lambda: served.store.master.release("barrier"))
    with pytest.raises(NotFound, match="released"):
        served.pull(frozen="barrier")


@pytest.mark.parametrize("frozen", ["", "barrier"])
def test_pull_of_rows_does_not_wait_for_the_lock(frozen: str) -> None:
    served = Served()
    served.store.master.freeze("barrier", generation=1)
    with futures.ThreadPoolExecutor(1) as pool, served.store.state.lock:
        out, moved = pool.submit(served.pull, frozen).result(timeout=60)
    assert not moved.any()
    np.testing.assert_array_equal(out, np.ones_like(out))


def test_export_of_rows_does_not_wait_for_the_lock() -> None:
    served = Served()
    with futures.ThreadPoolExecutor(1) as pool, served.store.state.lock:
        _, values, moved = pool.submit(served.export).result(timeout=60)
    assert not moved.any()
    np.testing.assert_array_equal(values, np.ones((len(IDS), 2), np.float32))


@pytest.mark.parametrize("event", ["hand_over", "hand_over_and_get_back", "close"])
def test_pulls_beside_a_change_are_right_or_refused(event: str) -> None:
    for _ in range(20):
        served = Served()
        begun, over = threading.Barrier(3), threading.Event()

        def pull_on(served: Served = served, begun: Any = begun, over: Any = over) -> int:
            begun.wait()
            pulls = 0
            while not over.is_set():
                try:
                    out, moved = served.pull()
                except (StaleGeneration, NotReady):
                    return pulls
                # Buckets that have come back are empty here. If any has moved, the arrays are not valid.
                if not moved.any() and not served.is_back:
                    np.testing.assert_array_equal(out, np.ones_like(out))
                pulls += 1
            return pulls

        with futures.ThreadPoolExecutor(2) as pool:
            pulling = [pool.submit(pull_on) for _ in range(2)]
            begun.wait()
            getattr(served, event)()
            over.set()
            for each in pulling:
                each.result(timeout=60)
