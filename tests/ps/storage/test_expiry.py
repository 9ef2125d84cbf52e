"""Rows without updates expire: a few buckets are searched at each step, and all such rows are found in time."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.embedding.optimizers import Optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.ps.storage.local_tables import LocalTables

SGD = Optimizer("torch", "sgd", {})


@pytest.mark.parametrize("after", [1, 7, 8, 100, 1_000, 2_048, 10_000])
@pytest.mark.parametrize("buckets", [1, 16, 256])
def test_every_bucket_has_its_turn_once_a_round(after: int, buckets: int) -> None:
    table = Table(TableSpec(name="t", width=1, expire_after=after), SGD, buckets=buckets)
    steps = max(1, after // 8)
    for start in (0, 1, 12_345):
        turns = [table.due(step) for step in range(start, start + steps)]
        assert sorted(bucket for turn in turns for bucket in turn) == list(range(buckets))
        assert max(map(len, turns)) <= -(-buckets // steps)


def test_rows_go_a_few_at_a_time() -> None:
    tables = LocalTables([TableSpec(name="t", width=1, expire_after=800)], optimizer=SGD)
    rows = RowGradients(ids=np.arange(20_000), values=np.ones((20_000, 1), np.float32))
    tables.apply({"t": rows}, learning_rate=0.1)
    left = []
    for _ in range(900):
        tables.apply({}, learning_rate=0.1)
        left.append(len(tables))
    gone = -np.diff([20_000, *left])
    assert left[798] == 20_000
    assert left[-1] == 0
    # Three of 256 buckets, and those that have more than others.
    assert gone.max() < 20_000 * 4 / 256
