"""While a server imports an optimizer of the user's own, which takes as long as it takes, it goes on with all else."""

from __future__ import annotations

import builtins
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.core.array_bodies import mask_of, pack
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.protocol.call_codec import decode_entry
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SLOW = """
import builtins

import elasticdl

builtins.looked()


class Slow(elasticdl.Optimizer):
    def update(self, value, gradient, slots, learning_rate, step):
        return value
"""
# Only to fail instead of waiting forever.
LONG_SECONDS = 40.0
NAMED = ps_pb2.OptimizerConfig(name="slow_one:Slow", flavor="python")
DOCUMENT = {"name": NAMED.name, "flavor": "python", "options": {}}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "slow_one.py").write_text(SLOW)
    store = Store(ServerSettings(model_zoo=str(tmp_path)))
    store.close(1)
    return store


@pytest.fixture
def was_free(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each import of the module: whether others could do something meanwhile."""
    seen: list[bool] = []

    def look() -> None:
        free = store.state.lock.acquire(blocking=False)
        if free:
            store.state.lock.release()
        seen.append(free)

    monkeypatch.setattr(builtins, "looked", look, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield seen
    sys.modules.pop("slow_one", None)


def test_server_is_free_while_worker_announces_optimizer(store: Store, was_free: list[bool]) -> None:
    store.open()
    values = {"x": np.ones(2, np.float32)}
    store.workers.initialize(InitialModel(trainable=values, state={}, optimizer=NAMED), generation=1)
    assert was_free == [True]


def receive(store: Store, entry: ps_pb2.Entry) -> None:
    everything = mask_of(range(256))
    entry.position, entry.version, entry.buckets = 1, 9, pack(everything)
    store.peers.receive(1, "other", 1, entry, everything, decode_entry(entry, memoryview(b"")))


def test_server_is_free_while_primary_announces_optimizer(store: Store, was_free: list[bool]) -> None:
    store.open()
    receive(store, ps_pb2.Entry(initialize=ps_pb2.InitializeRequest(generation=1, optimizer=NAMED)))
    assert was_free == [True]


def test_when_it_takes_the_place_of_one_from_a_checkpoint(store: Store, was_free: list[bool]) -> None:
    groups: dict[str, dict[str, Array]] = {"trainable": {}, "state": {}}
    before = {"name": "sgd", "flavor": "keras", "options": {}}
    store.open(NamedArrays(attributes={"version": 3, "optimizer": before}, groups=groups))
    receive(store, ps_pb2.Entry(initialize=ps_pb2.InitializeRequest(generation=1, optimizer=NAMED)))
    assert was_free == [True]


def test_when_another_server_fills_this_one(store: Store, was_free: list[bool]) -> None:
    store.open()
    receive(store, ps_pb2.Entry(fill=ps_pb2.Fill(attributes=json.dumps({"optimizer": DOCUMENT}), parts=1)))
    assert was_free == [True]


def test_when_it_is_in_a_checkpoint(store: Store, was_free: list[bool]) -> None:
    groups = {"trainable": {"x": np.ones(2, np.float32)}, "state": {}}
    store.open(NamedArrays(attributes={"version": 3, "optimizer": DOCUMENT}, groups=groups))
    assert was_free == [True]


def test_concurrent_import_waits_for_the_whole_module(
    store: Store, was_free: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open()
    values = {"x": np.ones(2, np.float32)}
    outcomes: list[object] = []
    # The second one waits for the first, or is at its end, because it has not waited.
    settled = threading.Event()
    importing = threading.RLock()

    class Seen:
        def __enter__(self) -> None:
            if threading.current_thread() is second:
                settled.set()
            importing.acquire()

        def __exit__(self, *error: object) -> None:
            importing.release()

    def initialize() -> None:
        try:
            initial = InitialModel(trainable=values, state={}, optimizer=NAMED)
            outcomes.append(store.workers.initialize(initial, generation=1).done_before)
        except Exception as error:  # noqa: BLE001
            outcomes.append(error)

    def come_second() -> None:
        initialize()
        settled.set()

    second = threading.Thread(target=come_second)

    def half_imported() -> None:
        second.start()
        assert settled.wait(LONG_SECONDS)

    monkeypatch.setattr("elasticdl.ps.embedding.custom_optimizer._IMPORTING", Seen())
    monkeypatch.setattr(builtins, "looked", half_imported)
    initialize()
    second.join()
    assert sorted(outcomes, key=str) == [False, True]
