"""Wide rows: a few of them take little more memory than they have numbers, and do all that others do."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Budget, Table, TableRows, TableSpec
from elasticdl.wire import ps_pb2


def new_table(width: int, *, buckets: int = BUCKETS, expire_after: int = 0) -> Table:
    spec = TableSpec(name="t", width=width, expire_after=expire_after)
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="adam", flavor="torch"))
    return Table(spec, optimizer, buckets=buckets, budget=Budget())


def train(table: Table, ids: Array, *, step: int = 1) -> None:
    gradients = np.ones((len(ids), table.spec.width), np.float32)
    table.update(ids, gradients, learning_rate=0.1, step=step)


@pytest.mark.parametrize("width", [1024, 4096, 20_000])
def test_a_few_in_every_bucket(width: int) -> None:
    table = new_table(width)
    train(table, np.arange(4 * BUCKETS))
    assert table.budget.used < 1.6 * table.row_bytes * len(table) + (1 << 20)


def rows_of(rows: TableRows) -> dict[int, tuple[float, float]]:
    """A number of each row, and one of its last slot."""
    assert rows.slots is not None
    return {
        int(each): (float(rows.values[n, -1]), float(rows.slots[n, -1, -1]))
        for n, each in enumerate(rows.ids)
    }


# 32, 16, 4 rows in a chunk, and one.
@pytest.mark.parametrize("width", [8, 100, 512, 4096])
def test_copies_and_changes_of_rows_that_come_and_go(width: int) -> None:
    table = new_table(width, buckets=1, expire_after=5)
    train(table, np.arange(90))
    before = rows_of(table.export(0))
    first = table.freeze(mark=True)
    train(table, np.arange(10, 60, 7), step=50)
    train(table, np.arange(1000, 1050), step=50)
    assert table.expire(50) == 90 - 8
    train(table, np.array([3, 1000]), step=51)
    second = table.freeze(mark=True)
    now = rows_of(table.export(0))
    assert now.keys() == {3, *range(10, 60, 7), *range(1000, 1050)}
    table.delete(0)
    train(table, np.arange(40))
    assert rows_of(table.export(0, frozen=first)) == before
    assert rows_of(table.export(0, frozen=second)) == now
    for frozen in (first, second):
        table.release(frozen)
    assert table.copied_bytes == 0
    table.delete(0)
    assert table.budget.used == 0


@pytest.mark.parametrize("width", [8, 100, 512, 4096])
def test_increment_of_wide_rows_holds_only_changes(width: int) -> None:
    table = new_table(width, buckets=1)
    train(table, np.arange(90))
    first = table.freeze(mark=True)
    train(table, np.array([5, 70, 200]))
    table.forget(0, np.array([40]))
    second = table.freeze(mark=True)
    changed = table.export(0, frozen=second, since=first)
    assert not changed.complete
    assert changed.forgotten is not None
    assert changed.forgotten.tolist() == [40]
    # The last one came to the place of the one that was forgotten.
    assert set(changed.ids.tolist()) == {5, 70, 200}
    assert len(table) == 90
