"""Rows pulled before they are asked for: found out by looking, and never others than those asked for."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.embedding.table import Ids, TableSpec
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.model.row_prefetcher import Place, RowsAhead, find_place

USERS, ITEMS = TableSpec(name="users", width=2), TableSpec(name="items", width=3)


class Counting:
    """A source that tells who asked for what; real tables give the rows."""

    def __init__(self) -> None:
        self._tables = LocalTables([USERS, ITEMS])
        self.asked: list[tuple[str, dict[str, int]]] = []
        self.broken = False

    def pull_rows(
        self, wanted: Mapping[str, Ids], *, frozen: str = "", create: bool = True
    ) -> dict[str, Array]:
        if self.broken:
            raise ConnectionError("away")
        thread = "main" if threading.current_thread() is threading.main_thread() else "ahead"
        self.asked.append((thread, {table: len(ids) for table, ids in wanted.items()}))
        return self._tables.pull_rows(wanted, create=create)


class Model:
    """Looks up columns of one feature, and another feature as it is; `shift` makes it a model that computes ids."""

    def __init__(self) -> None:
        self.source = Counting()
        self.ahead = RowsAhead(self.source, lambda batch: [batch["numbers"], batch["item"]])
        self.lookups = Lookups(self.source)
        self.lookups.ahead = self.ahead
        self.shift = 0

    def compute(self, batch: dict[str, Any], upcoming: dict[str, Any] | None) -> None:
        self.ahead.begin(batch, upcoming)
        wanted = [
            ("users", batch["numbers"][:, 1]),
            ("users", batch["numbers"][:, 2:4]),
            ("items", batch["item"] + self.shift),
        ]
        for table, ids in wanted:
            flat = np.ascontiguousarray(ids.reshape(-1))
            found = self.lookups.find(table, flat, create=True)
            np.testing.assert_array_equal(found.ids[found.inverse], flat)
            rows = self.source._tables.pull_rows({table: found.ids})[table]
            np.testing.assert_array_equal(found.rows, rows)
        self.ahead.learn(batch)


def batches(count: int, size: int = 6) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        {
            "numbers": random.integers(0, 50, (size - number % 2, 5)),
            "item": random.integers(0, 50, size - number % 2),
        }
        for number in range(count)
    ]


def train(model: Model, given: list[dict[str, Any]]) -> None:
    for number, batch in enumerate(given):
        model.compute(batch, given[number + 1] if number + 1 < len(given) else None)


def test_from_the_third_batch_on_everything_is_there_with_one_pull() -> None:
    """The first is looked at, the second is pulled, before any lookup is known."""
    model = Model()
    train(model, batches(6))
    asked = [thread for thread, _ in model.source.asked]
    # Three lookups of the first batch, and of the second, which was not foreseen.
    assert (asked.count("main"), asked.count("ahead")) == (6, 4)
    assert all(
        set(wanted) == {"users", "items"} for thread, wanted in model.source.asked if thread == "ahead"
    )
    assert model.ahead.hits == 3 * 4
    model.ahead.close()


def test_ids_that_are_computed_are_pulled_when_asked_for() -> None:
    model = Model()
    model.shift = 1000
    train(model, batches(12))
    main = [wanted for thread, wanted in model.source.asked if thread == "main"]
    assert sum("items" in wanted for wanted in main) == 12
    assert model.ahead.hits == 2 * 10
    model.ahead.close()


def test_a_model_that_begins_to_ask_for_something_else() -> None:
    model = Model()
    given = batches(12)
    for number, batch in enumerate(given):
        model.shift = 0 if number < 6 else 1
        model.compute(batch, given[number + 1] if number + 1 < len(given) else None)
    assert model.ahead.misses >= 6 + 6
    model.ahead.close()


def test_another_batch_than_the_one_foreseen() -> None:
    model = Model()
    given = batches(6)
    train(model, given[:3])
    model.compute(given[3], given[4])
    hits = model.ahead.hits
    model.compute(given[5], None)
    assert model.ahead.hits == hits
    model.ahead.close()


def test_failed_prefetch_raises_when_rows_are_used() -> None:
    model = Model()
    given = batches(6)
    train(model, given[:4])
    model.compute(given[4], given[5])
    model.ahead._thread.settle()
    model.source.broken = True
    model.ahead.begin(given[5], given[0])
    model.lookups.find("users", np.ascontiguousarray(given[5]["numbers"][:, 1]), create=True)
    model.ahead.begin(given[0], None)
    with pytest.raises(ConnectionError):
        model.lookups.find("users", np.ascontiguousarray(given[0]["numbers"][:, 1]), create=True)
    model.ahead.close()


def test_evaluation_does_not_take_what_was_pulled_for_training() -> None:
    model = Model()
    given = batches(4)
    train(model, given[:3])
    asked = len(model.source.asked)
    model.lookups.find("users", np.ascontiguousarray(given[2]["numbers"][:, 1]), create=False)
    assert len(model.source.asked) == asked + 1
    model.ahead.close()


def test_place_of_ids_in_features_is_found() -> None:
    numbers = np.arange(12).reshape(4, 3)
    features = [np.zeros((4, 2)), numbers, numbers[:, 0] * 2.0]
    assert find_place(numbers.reshape(-1), features) == Place(feature=1)
    assert find_place(numbers[:, 1:].reshape(-1), features) == Place(feature=1, column=1, width=2)
    assert find_place(numbers[:, 0] * 2, features) == Place(feature=2)
    assert find_place(numbers[:, 0] * 3, features) is None
    assert find_place(np.array([], np.int64), features) is None
