"""A memory limit is for rows: not for what a checkpoint keeps for a while, nor for the places of rows that are gone."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.memory_limit import room_beside_rows, room_for_rows
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import TableFull, TableSpec
from elasticdl.ps.storage.table_set import RowPart, Tables
from elasticdl.wire import ps_pb2

ALL = np.ones(BUCKETS, np.bool_)
ROWS = 40_000


def tables(limit: int = 0, *, expire_after: int = 0, ids: int = ROWS) -> Tables:
    made = Tables(memory_limit=limit)
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="adagrad", flavor="keras"))
    made.declare([TableSpec(name="t", width=16, expire_after=expire_after)], optimizer)
    made.update(rows(0, ids), 0.1, 1)
    return made


def rows(first: int, count: int) -> dict[str, RowPart]:
    return {"t": RowPart(ids=np.arange(first, first + count), values=np.ones((count, 16), np.float32))}


def test_the_rest_of_the_memory_is_beside_that_for_rows() -> None:
    assert room_for_rows(4 << 30) + room_beside_rows(room_for_rows(4 << 30)) == 4 << 30


def test_new_rows_are_taken_while_a_checkpoint_is_written() -> None:
    # Rows take two thirds of what is for them, and so half of all memory. Half of them change.
    limit = tables().bytes * 3 // 2
    trained = tables(limit)
    frozen = trained.freeze()
    trained.update(rows(0, ROWS // 2), 0.1, 2)
    assert trained.bytes > limit * 0.99
    trained.check(rows(ROWS, 1000))
    trained.release(frozen)


def test_copies_beyond_the_room_for_them_are_taken_from_that_for_rows() -> None:
    limit = tables().bytes * 9 // 8
    trained = tables(limit)
    frozen = trained.freeze()
    trained.update(rows(0, ROWS), 0.1, 2)
    with pytest.raises(TableFull, match="cannot take 100 new rows") as refused:
        trained.check(rows(ROWS, 100))
    assert refused.value.refused == {"t": 100}
    # Those that are there are trained all the same.
    trained.check(rows(0, ROWS))
    trained.release(frozen)
    trained.check(rows(ROWS, 100))


def test_the_places_of_rows_that_have_expired_are_room_for_new_ones() -> None:
    limit = tables(expire_after=8).bytes + 1000
    full = tables(limit, expire_after=8)
    with pytest.raises(TableFull):
        full.check(rows(ROWS, ROWS // 2))
    full.update(rows(0, ROWS // 4), 0.1, 100)
    full.expire(ALL, 100)
    assert full.rows == ROWS // 4
    full.check(rows(ROWS, ROWS // 2))
    full.update(rows(ROWS, ROWS // 2), 0.1, 101)
    assert full.bytes <= limit
    with pytest.raises(TableFull, match=f"cannot take {ROWS:,} new rows"):
        full.check(rows(2 * ROWS, ROWS))
