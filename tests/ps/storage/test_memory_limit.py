"""Rows that come from another server are taken in beyond the memory limit, with one warning."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import TableFull, TableSpec
from elasticdl.ps.storage.table_set import RowPart, Tables
from elasticdl.wire import ps_pb2

SPEC = TableSpec(name="t", width=16)
ALL = np.ones(BUCKETS, np.bool_)


def tables(limit: int = 0) -> Tables:
    made = Tables(memory_limit=limit)
    made.declare([SPEC], make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="keras")))
    return made


def rows(first: int, count: int) -> dict[str, RowPart]:
    return {"t": RowPart(ids=np.arange(first, first + count), values=np.ones((count, 16), np.float32))}


def memory_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Threads of earlier tests may log as well."""
    return [record.message for record in caplog.records if "are meant for them" in record.message]


def test_rows_beyond_the_limit_are_kept_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    full = tables()
    full.update(rows(0, 20_000), 0.1, 1)
    groups = full.groups(ALL)
    small = tables(limit=full.bytes // 2)
    small.put(groups)
    small.put(groups)
    assert small.rows == 20_000
    warnings = memory_warnings(caplog)
    assert len(warnings) == 1
    assert f"{small.bytes:,} bytes; {full.bytes // 2:,} are meant for them" in warnings[0]
    # Those that are here can be trained; there are no new ones.
    small.check(rows(0, 1000))
    with pytest.raises(TableFull, match="cannot take 10 new rows"):
        small.check(rows(20_000, 10))


def test_rows_within_the_limit_log_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    few = tables()
    few.update(rows(0, 100), 0.1, 1)
    tables(limit=1 << 30).put(few.groups(ALL))
    assert not memory_warnings(caplog)
