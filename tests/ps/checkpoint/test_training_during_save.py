"""While a checkpoint is written, however slow the disk, pushes and lookups go on; written is what was frozen."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.wire import ps_pb2

IDS = np.arange(3000)
TABLE = TableSpec(name="users", width=4)
# Only to fail instead of waiting forever.
LONG_SECONDS = 120.0


class SlowDisk:
    """Blocks its writer at every array, until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()
        write = ArrayFileWriter.add

        def add(file: ArrayFileWriter, group: str, name: str, given: Array) -> None:
            self.reached.set()
            assert self.goes_on.wait(LONG_SECONDS)
            write(file, group, name, given)

        monkeypatch.setattr(ArrayFileWriter, "add", add)


def test_pushes_and_lookups_go_on(
    start_servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = start_servers(1)
    store, client = servers.stores[0], servers.client()
    sgd = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    client.initialize({"kernel": np.zeros(3, np.float32)}, {}, sgd, [TABLE])

    def push() -> None:
        rows = {"users": RowGradients(ids=IDS, values=np.ones((len(IDS), 4), np.float32))}
        gradients = {"kernel": np.ones(3, np.float32)}
        client.push(gradients, rows=rows, learning_rate=1.0, versions=client.pull().versions)

    def pull() -> Array:
        found: Array = client.pull_rows({"users": IDS})["users"]
        return found

    push()
    frozen = pull()
    store.master.freeze("barrier", generation=1, flush=True)
    disk = SlowDisk(monkeypatch)
    with futures.ThreadPoolExecutor(2) as pool:
        try:
            saved = pool.submit(store.master.save, "barrier", tmp_path / "x.edl")
            assert disk.reached.wait(LONG_SECONDS)
            for _ in range(3):
                pool.submit(push).result(LONG_SECONDS)
            np.testing.assert_array_equal(pool.submit(pull).result(LONG_SECONDS), frozen - 3)
            # Another copy can be made, looked at and forgotten.
            pool.submit(store.master.freeze, "evaluation", generation=1).result(LONG_SECONDS)
            pool.submit(store.master.release, "evaluation").result(LONG_SECONDS)
            assert not saved.done()
        finally:
            disk.goes_on.set()
        assert saved.result(LONG_SECONDS).complete
    store.master.release("barrier")
    with SavedTables([[tmp_path / "x.edl"]]) as tables:
        parts = [tables.rows("users", bucket) for bucket in range(tables.descriptions["users"].buckets)]
    found = {
        i: row for part in parts if part is not None for i, row in zip(part.ids, part.values, strict=True)
    }
    assert len(found) == len(IDS)
    for identifier, row in zip(IDS, frozen, strict=True):
        np.testing.assert_array_equal(found[identifier], row)
