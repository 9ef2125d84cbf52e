"""A table at its memory limit refuses new rows, says so, and keeps serving those it has."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Budget, Table, TableFull, TableSpec
from elasticdl.wire import ps_pb2

LIMIT = 1_000_000


def new_table(budget: Budget, name: str = "clicks") -> Table:
    config = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
    return Table(TableSpec(name=name, width=16), make_optimizer(config), buckets=16, budget=budget)


def fill(table: Table) -> int:
    """Rows until there is no more room; how many ids were asked for."""
    for start in range(0, 100_000, 100):
        try:
            table.gather(np.arange(start, start + 100, dtype=np.int64))
        except TableFull:
            return start + 100
    raise AssertionError("it never became full")


def test_rows_there_are_are_served_and_trained() -> None:
    budget = Budget(LIMIT)
    table = new_table(budget)
    asked = fill(table)
    assert budget.used <= LIMIT
    # Most of the memory went into rows.
    assert len(table) * 128 > 0.8 * LIMIT
    assert len(table) < asked
    held = np.concatenate([table.export(bucket).ids for bucket in range(16)])
    before = table.gather(held)
    outcome = table.update(held, np.ones((len(held), 16), np.float32), learning_rate=0.1)
    assert outcome.found == len(held)
    assert np.all(table.gather(held) < before)
    with pytest.raises(
        TableFull, match=r"clicks cannot take \d+ new rows: [\d,]+ rows and [\d,]+ of 1,000,000"
    ):
        table.gather(np.arange(-1000, 0))
    # To look does not need a row, nor does an update of one that is not there break anything.
    assert table.gather([-5], create=False).shape == (1, 16)
    assert table.update(np.arange(-1000, 0), np.ones((1000, 16), np.float32), learning_rate=0.1).refused > 0


def test_memory_that_is_given_back_is_room_for_others() -> None:
    budget = Budget(LIMIT)
    table = new_table(budget)
    fill(table)
    rows = len(table)
    other = new_table(budget, "views")
    with pytest.raises(TableFull):
        other.gather(np.arange(1000))
    for bucket in range(16):
        table.delete(bucket)
    assert len(table) == 0
    fill(other)
    assert len(other) > 0.8 * rows
    del other, table
    assert budget.used == 0
