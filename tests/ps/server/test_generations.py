"""When a generation begins, everything of the one before is dropped, and its callers are refused."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.ps.core.server_errors import NotReady, StaleGeneration
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


def test_nothing_is_answered_before_the_first() -> None:
    store = Store(ServerSettings())
    for generation in (0, 1):
        with pytest.raises(NotReady):
            store.workers.initialize(
                InitialModel(trainable={}, state={}, optimizer=SGD), generation=generation
            )
        with pytest.raises(NotReady):
            store.workers.pull(lambda pulled: pulled, generation=generation)
    assert store.master.status().generation == -1


def test_callers_of_the_old_one_are_refused_for_good(make_store: Any) -> None:
    small = make_store()
    small.store.close(2)
    small.store.open()
    with pytest.raises(StaleGeneration, match="generation 1 is over"):
        small.push([1.0, 1.0])
    with pytest.raises(StaleGeneration):
        small.pull()
    with pytest.raises(StaleGeneration):
        small.initialize()
    with pytest.raises(StaleGeneration):
        small.store.master.freeze("barrier", generation=1)
    with pytest.raises(StaleGeneration):
        small.store.master.fence("worker-0", generation=1)


def test_callers_of_the_next_one_are_refused_for_now(make_store: Any) -> None:
    small = make_store()
    with pytest.raises(NotReady):
        small.push([1.0, 1.0], generation=2)
    with pytest.raises(NotReady):
        small.pull(generation=2)
    small.store.close(2)
    with pytest.raises(NotReady):
        small.pull(generation=2)
    with pytest.raises(NotReady):
        small.store.master.fence("worker-0", generation=2)
    small.store.open()
    assert not small.pull(generation=2).initialized


def test_nothing_survives(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0], sequence=9)
    small.store.master.fence("worker-1", generation=1)
    small.store.master.freeze("barrier", generation=1)
    small.store.close(2)
    small.store.open()
    status = small.store.master.status()
    assert (status.generation, status.initialized, status.version, status.pushes) == (2, False, 0, 0)
    assert small.store.master.fence("worker-0", generation=2).last.sequence == 0
    with pytest.raises(Exception, match="no snapshot"):
        small.store.master.frozen("barrier")
