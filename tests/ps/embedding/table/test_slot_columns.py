"""Slots of an optimizer of the user's own may be called as the other columns of a table are: both can be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import elasticdl
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import CustomRule
from elasticdl.ps.embedding.optimizers import CustomOptimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.local_tables import LocalTables


class OddNames(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"values": 1.0, "slot_values": 2.0, "id": 3.0, "other": 4.0}

    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        return value


def test_no_two_columns_have_one_name(tmp_path: Path) -> None:
    tables = LocalTables([TableSpec(name="t", width=1)], optimizer=CustomOptimizer(CustomRule(OddNames())))
    gradients = RowGradients(ids=np.array([-7]), values=np.ones((1, 1), np.float32))
    tables.apply({"t": gradients}, learning_rate=0.1)
    with ArrayFileWriter(tmp_path / "one.edl") as file:
        file.finish(tables.write(file))
    with elasticdl.open_snapshot(tmp_path / "one.edl") as snapshot:
        snapshot.table("t").to_parquet(tmp_path / "t.parquet", slots=True)
    (row,) = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert row["id"] == -7
    assert abs(row["values"][0]) < 0.1
    slots = {name: row[name] for name in row if name not in ("id", "values")}
    assert slots == {"slot_slot_values": [1.0], "slot_values": [2.0], "slot_id": [3.0], "other": [4.0]}
