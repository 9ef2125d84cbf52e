"""A snapshot stays as it was, whatever happens to the live values, and costs nothing until they change."""

from __future__ import annotations

import threading
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.array_bodies import mask_of
from elasticdl.ps.core.buckets import NO_SERVER, BucketMap, first_map
from elasticdl.ps.core.server_errors import NotFound, NotReady
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.ps.storage.copy_on_write_snapshot import CopyOnWriteSnapshot
from elasticdl.wire import ps_pb2

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="torch", options={"amsgrad": 1})


def test_copies_stay_as_they_were(make_store: Any) -> None:
    small = make_store(ADAM)
    seen = []
    for number in range(5):
        assert small.store.master.freeze(f"barrier-{number}", generation=1) == number
        frozen = small.store.master.frozen(f"barrier-{number}")
        seen.append(
            {group: {n: a.copy() for n, a in arrays.items()} for group, arrays in frozen.groups.items()}
        )
        small.push([1.0, -1.0], sequence=number + 1, state={"mean": np.array([float(number)])})
    for number, groups in enumerate(seen):
        frozen = small.store.master.frozen(f"barrier-{number}")
        assert frozen.attributes["version"] == number
        assert frozen.groups.keys() == groups.keys()
        for group, arrays in groups.items():
            for name, array in arrays.items():
                np.testing.assert_array_equal(frozen.groups[group][name], array)
        assert small.pull(frozen=f"barrier-{number}").version == number


def test_freezing_copies_nothing_and_the_next_update_copies_once(make_store: Any) -> None:
    small = make_store()

    def live() -> Any:
        return small.store.workers.pull(lambda pulled: pulled.trainable["x"], generation=1)

    small.store.master.freeze("barrier", generation=1)
    frozen = small.store.master.frozen("barrier").groups["trainable"]["x"]
    assert np.shares_memory(frozen, live())
    small.push([1.0, 1.0], sequence=1)
    copied = live()
    assert not np.shares_memory(frozen, copied)
    small.push([1.0, 1.0], sequence=2)
    assert np.shares_memory(copied, live())


def test_freezing_again_keeps_the_first(make_store: Any) -> None:
    small = make_store()
    assert small.store.master.freeze("barrier", generation=1) == 0
    small.push([1.0, 1.0])
    assert small.store.master.freeze("barrier", generation=1) == 0
    assert list(small.pull(frozen="barrier").trainable["x"]) == [1.0, 2.0]


def test_released_snapshot_stays_readable_for_its_holder(make_store: Any) -> None:
    small = make_store()
    small.store.master.freeze("barrier", generation=1)
    held = small.store.master.frozen("barrier")
    small.store.master.release("barrier")
    small.store.master.release("barrier")
    small.push([1.0, 1.0])
    assert list(held.groups["trainable"]["x"]) == [1.0, 2.0]
    with pytest.raises(NotFound, match="no snapshot 'barrier'"):
        small.pull(frozen="barrier")
    with pytest.raises(NotFound, match="no snapshot 'barrier'"):
        small.store.master.frozen("barrier")


def test_there_must_be_something_to_freeze() -> None:
    store = Store(ServerSettings())
    store.close(1)
    store.open()
    with pytest.raises(NotFound):
        store.master.freeze("barrier", generation=1)


def test_snapshot_is_not_sent_to_a_client_that_has_it(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0])
    small.store.master.freeze("barrier", generation=1)
    assert small.pull(frozen="barrier", known_version=1).unchanged
    assert not small.pull(frozen="barrier", known_version=0).unchanged


def a_backup_that_does_not_know() -> tuple[Store, BucketMap]:
    """A store that is no backup as far as it knows, and the map by which it is one."""
    old = first_map(2, replicas=1)
    new = replace(old, version=2, backup=tuple(1 - server for server in old.primary))
    store = Store(ServerSettings(), number=1)
    store.close(1)
    store.peers.update_routes(Routes(map=old))
    store.open()
    initial = InitialModel(trainable={}, state={}, optimizer=ADAM)
    # As if the other one had filled it.
    store.state.bucket_store.initialize(mask_of(range(256)), initial)
    return store, new


def test_a_backup_that_does_not_know_it_yet_freezes_nothing() -> None:
    store, new = a_backup_that_does_not_know()
    with pytest.raises(NotReady, match="map 2"):
        store.master.freeze("barrier", generation=1, map_version=2)
    store.peers.update_routes(Routes(map=new))
    store.master.freeze("barrier", generation=1, map_version=2)
    assert store.state.find_snapshot("barrier").mask.all()


def test_freeze_waits_for_a_map_in_flight() -> None:
    store, new = a_backup_that_does_not_know()
    with futures.ThreadPoolExecutor(1) as pool:
        freezing = pool.submit(store.master.freeze, "barrier", generation=1, map_version=2, seconds=60.0)
        store.peers.update_routes(Routes(map=new))
        assert freezing.result() == 0
    assert store.state.find_snapshot("barrier").mask.all()


def test_concurrent_freezes_make_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the master was not patient enough, and asks again while the first call waits for the other copy."""
    both = first_map(2, replicas=2)
    store = Store(ServerSettings(), number=1)
    store.close(1)
    store.peers.update_routes(Routes(map=both, addresses={0: "127.0.0.1:1"}))
    store.open()
    store.state.bucket_store.initialize(
        mask_of(range(256)), InitialModel(trainable={}, state={}, optimizer=ADAM)
    )
    waiting, made = threading.Semaphore(0), []
    wait, make = store.state.wait_replicated, CopyOnWriteSnapshot.make

    def seen_waiting(*given: Any, **more: Any) -> Any:
        waiting.release()
        return wait(*given, **more)

    def counted(*given: Any, **more: Any) -> CopyOnWriteSnapshot:
        made.append(make(*given, **more))
        return made[-1]

    monkeypatch.setattr(store.state, "wait_replicated", seen_waiting)
    monkeypatch.setattr(CopyOnWriteSnapshot, "make", counted)
    with futures.ThreadPoolExecutor(2) as pool:
        freezing = [pool.submit(store.master.freeze, "barrier", generation=1, flush=True) for _ in range(2)]
        for _ in freezing:
            waiting.acquire()
        alone = replace(both, version=2, primary=(1,) * 256, backup=(NO_SERVER,) * 256)
        store.peers.update_routes(Routes(map=alone))
        assert [each.result() for each in freezing] == [0, 0]
    assert len(made) == 1


def test_pull_of_a_snapshot_sends_the_requested_buckets_only() -> None:
    """What a server backs up is in its copy, and comes from others."""
    store = Store(ServerSettings(), number=0)
    store.close(1)
    made = first_map(2)
    store.peers.update_routes(Routes(map=made))
    store.open()
    values = {"here": np.zeros(4, np.float32), "there": np.ones(4, np.float32)}
    initial = InitialModel(
        trainable=values, state={}, optimizer=ADAM, array_buckets={"here": 0, "there": 128}
    )
    store.state.bucket_store.initialize(mask_of(range(256)), initial)
    store.master.freeze("barrier", generation=1)
    pulled = store.workers.pull(
        lambda pulled: list(pulled.trainable),
        generation=1,
        frozen="barrier",
        buckets=mask_of(made.primaries_of(0)),
    )
    assert pulled == ["here"]


def test_snapshot_released_during_save_is_not_written(make_store: Any, tmp_path: Path) -> None:
    """Not a fault of the request: its caller may have made another one since."""
    small = make_store()
    small.store.state.bucket_store.tables.declare(
        [TableSpec(name="users", width=4)], make_optimizer(small.optimizer)
    )
    small.store.master.freeze("barrier", generation=1)
    with pytest.raises(NotFound, match="'barrier' has just been released"):
        small.store.master.save(
            "barrier", tmp_path / "x.edl", check=lambda: small.store.master.release("barrier")
        )
    assert not (tmp_path / "barrier.edl").exists()
