"""Synchronous training of tables: the mean of so many gradients is one update of each row, whichever rows each push has
and whatever they travel in.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.table import TRANSFER, TableSpec, buckets_of, convert
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.ps.storage.table_set import RowPart
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.0})
TABLES = [TableSpec(name=name, width=2, initializer=Initializer(kind="zeros")) for name in ("t", "u")]
EVERY_BUCKET = np.ones(BUCKETS, np.bool_)


@pytest.fixture(autouse=True)
def _faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(status: int) -> None:
        raise AssertionError(f"the process ends with {status}")

    monkeypatch.setattr(os, "_exit", give_up)


class Small:
    def __init__(self, **settings: Any) -> None:
        self.store = Store(ServerSettings(**settings))
        self.store.close(1)
        self.store.open()
        self.sequence = 0
        initial = InitialModel(trainable={}, state={}, optimizer=SGD, tables=TABLES)
        self.store.workers.initialize(initial, generation=1)

    def push(self, transfer: str = "float32", **rows: dict[int, float]) -> None:
        self.sequence += 1
        parts = {
            name: RowPart(
                ids=np.array(list(given), np.int64),
                values=convert(
                    np.array([[g, g] for g in given.values()], np.float32).reshape(-1, 2), transfer
                ),
            )
            for name, given in rows.items()
        }
        push = Push(
            worker="w",
            sequence=self.sequence,
            version=(self.sequence - 1) // 2,
            learning_rate=1.0,
            gradients={},
            rows=parts,
            generation=1,
        )
        assert self.store.workers.push(push).accepted

    def rows(self, name: str, ids: list[int]) -> list[float]:
        out = np.empty((len(ids), 2), np.float32)
        self.store.workers.pull_rows([(name, np.array(ids))], lambda sizes: [out], generation=1)
        assert (out[:, 0] == out[:, 1]).all()
        return [float(number) for number in out[:, 0]]


def test_the_mean_of_two_pushes_with_other_rows() -> None:
    small = Small(grads_to_wait=2)
    small.push(t={1: -2.0, 2: -4.0})
    assert small.rows("t", [1, 2]) == [0.0, 0.0]
    small.push(t={2: -4.0, 3: -6.0})
    assert small.rows("t", [1, 2, 3]) == [1.0, 4.0, 3.0]


def test_versions_without_rows_of_a_table() -> None:
    small = Small(grads_to_wait=2)
    small.push(t={1: -2.0})
    small.push(u={1: -2.0})
    # One version without either, one with a table of which there is nothing, one with rows again.
    pushes: list[dict[str, Any]] = [{}, {}, {"t": {}}, {"t": {}}, {"t": {1: -4.0}}, {}]
    for rows in pushes:
        small.push(**rows)
    assert small.rows("t", [1]) == [3.0]
    assert small.rows("u", [1]) == [1.0]


def test_a_bucket_that_is_forgotten_takes_its_gradients_with_it() -> None:
    small = Small(grads_to_wait=2)
    small.push(t={1: -2.0})
    tables = small.store.state.bucket_store.tables
    tables.drop(EVERY_BUCKET)
    assert not any(tables.waiting_groups(EVERY_BUCKET).values())
    small.push(u={1: -2.0})
    assert small.rows("t", [1]) == [0.0]


@pytest.mark.parametrize("transfer", TRANSFER)
@pytest.mark.parametrize("settings", [{"grads_to_wait": 2}, {"asynchronous": False}], ids=["two", "one"])
def test_whatever_gradients_travel_in(transfer: str, settings: dict[str, Any]) -> None:
    small = Small(sync_version_tolerance=10, **settings)
    small.push(transfer, t={1: -3.0, 2: 0.5})
    small.push(transfer, t={1: -3.0, 2: 0.5})
    whole = settings.get("grads_to_wait", 1)
    assert small.rows("t", [1, 2]) == [6.0 / whole, -1.0 / whole]


@pytest.mark.parametrize("transfer", TRANSFER)
def test_pending_gradients_are_exported_as_float32(transfer: str) -> None:
    """In a checkpoint or on the way to another server nothing else says what the numbers are."""
    small = Small(grads_to_wait=3)
    given = {number: -float(number) for number in range(1, 200)}
    small.push(transfer, t=given)
    small.push(transfer, t={5: -8.0})
    groups = small.store.state.bucket_store.tables.waiting_groups(EVERY_BUCKET)["waiting:t"]
    for bucket in np.unique(buckets_of(np.array(list(given)), BUCKETS)):
        ids, values = groups[f"{bucket}/ids"], groups[f"{bucket}/values"]
        assert (buckets_of(ids, BUCKETS) == bucket).all()
        assert values.dtype == np.float32
    # In the order in which they came.
    five = int(buckets_of(np.array([5]), BUCKETS)[0])
    found = groups[f"{five}/values"][groups[f"{five}/ids"] == 5]
    np.testing.assert_array_equal(found, [[-5.0, -5.0], [-8.0, -8.0]])
    assert sum(len(array) for name, array in groups.items() if name.endswith("/ids")) == len(given) + 1
    other = Small(grads_to_wait=3)
    other.store.state.bucket_store.tables.put({"waiting:t": groups})
    other.store.state.bucket_store.tables.apply_waiting(EVERY_BUCKET, 1, 1.0, 1)
    assert other.rows("t", [1, 5, 199]) == [1.0, 13.0, 199.0]
