"""Options of a table may be NumPy's whole numbers: what is computed of a data set often is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.wire import ps_pb2


@pytest.mark.parametrize(
    "options",
    [
        {"width": np.int64(4)},
        {"width": 4, "seed": np.int64(-3)},
        {"width": 4, "admit_after": np.int32(2)},
        {"width": 4, "expire_after": np.uint8(200)},
    ],
    ids=lambda options: next(reversed(options)),
)
def test_table_with_numpy_options_trains_and_saves(tmp_path: Path, options: dict[str, Any]) -> None:
    spec = TableSpec(name="t", **options)
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="torch"))
    tables = LocalTables([spec], optimizer=optimizer)
    ids = np.arange(3)
    # Beyond what a byte can count.
    for _ in range(300):
        tables.apply(
            {"t": RowGradients(ids=ids, values=np.ones((3, 4), np.float32))},
            learning_rate=0.1,
        )
    with ArrayFileWriter(tmp_path / "one.edl") as file:
        file.finish(tables.write(file))
    usual: dict[str, Any] = {key: int(value) for key, value in options.items()}
    plain = TableSpec(name="t", **usual)
    again = LocalTables([plain], optimizer=optimizer)
    again.restore([[tmp_path / "one.edl"]])
    np.testing.assert_array_equal(again.rows("t")[1], tables.rows("t")[1])
    assert len(again) == 3
    assert repr(spec) == repr(plain)
