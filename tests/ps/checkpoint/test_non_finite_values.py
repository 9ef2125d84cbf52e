"""A checkpoint with NaN or infinity in the model never follows a good one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.server_errors import WriteFailed
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


@pytest.mark.parametrize("kind", ["dense", "table"])
def test_overflowed_parameters_are_not_written(start_servers: Any, tmp_path: Path, kind: str) -> None:
    started = start_servers(1)
    client = started.client()
    ids = np.arange(3, dtype=np.int64)
    client.initialize({"a": np.ones(4, np.float32)}, {}, SGD, [TableSpec(name="clicks", width=2)])
    # Finite gradients and a rate by which the parameters leave the range of float32.
    dense = {"a": np.full(4, -3e38 if kind == "dense" else 0.0, np.float32)}
    values = np.full((3, 2), -3e38 if kind == "table" else 0.0, np.float32)
    client.push(
        dense,
        state={},
        rows={"clicks": RowGradients(ids=ids, values=values)},
        learning_rate=10.0,
        versions=client.pull().versions,
    )
    (store,) = started.stores
    store.master.freeze("now", generation=1)
    with pytest.raises(WriteFailed, match="is not finite"):
        store.master.save("now", tmp_path / "file")
    assert not list(tmp_path.iterdir())
