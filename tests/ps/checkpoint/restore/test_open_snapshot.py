"""A checkpoint opened from Python: parameters as arrays, tables as NumPy, Arrow and Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.checkpoint_folders import (
    Manifest,
    SavedFile,
    manifest_crc32,
    prune,
    write_manifest,
)
from elasticdl.ps.checkpoint.table_files import TABLES, describe, write_table
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Frozen, Table, TableSpec
from elasticdl.wire import ps_pb2

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
BUCKETS = 8


@pytest.fixture
def table() -> Table:
    made = Table(TableSpec(name="user", width=3), make_optimizer(ADAGRAD), buckets=BUCKETS)
    made.update(np.arange(100), np.ones((100, 3), np.float32), learning_rate=0.5)
    return made


def checkpoint(
    folder: Path, step: int, table: Table, *, base: str = "", since: Frozen | None = None
) -> tuple[Path, Frozen]:
    """As two servers write one, with half of the buckets each."""
    path = folder / f"version-{step}"
    path.mkdir(parents=True)
    frozen = table.freeze()
    files = []
    for server in range(2):
        name = f"ps-{server}-of-2.edl"
        with ArrayFileWriter(path / name) as file:
            file.add("trainable", f"kernel-{server}", np.full((2, 2), server, np.float32))
            mine = range(server, BUCKETS, 2)
            write_table(file, table, frozen, buckets=mine, since=dict.fromkeys(mine, since) if since else {})
            size, crc32 = file.finish({"version": step, TABLES: {"user": describe(table).as_json()}})
        files.append(SavedFile(name=name, bytes=size, crc32=crc32))
    base_crc32 = (manifest_crc32(folder / base) or 0) if base else 0
    manifest = Manifest(step=step, files=tuple(files), base=base, base_crc32=base_crc32)
    write_manifest(path, manifest, None)
    return path, frozen


def rows_of(table: Table) -> dict[int, list[float]]:
    return dict(zip(range(100), table.gather(np.arange(100)).tolist(), strict=True))


def test_parameters_and_tables(tmp_path: Path, table: Table) -> None:
    checkpoint(tmp_path, 7, table)
    with elasticdl.open_snapshot(tmp_path) as snapshot:
        assert snapshot.step == 7
        assert snapshot.arrays == {"trainable": ["kernel-0", "kernel-1"]}
        np.testing.assert_array_equal(snapshot.array("kernel-1"), np.ones((2, 2), np.float32))
        assert snapshot.tables == ["user"]
        ids, values = snapshot.table("user").to_numpy()
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == rows_of(table)


def test_arrow_and_parquet(tmp_path: Path, table: Table) -> None:
    checkpoint(tmp_path, 7, table)
    with elasticdl.open_snapshot(tmp_path / "version-7") as snapshot:
        saved = snapshot.table("user")
        arrow = saved.to_arrow(slots=True)
        assert saved.to_parquet(tmp_path / "user.parquet") == 100
        assert saved.to_parquet(tmp_path / "slots.parquet", slots=True) == 100
    assert arrow.column_names == ["id", "values", "accumulator"]
    assert np.allclose(arrow["accumulator"].to_pylist(), 1.1)
    for file in ("user.parquet", "slots.parquet"):
        read = pq.read_table(tmp_path / file)
        found = dict(zip(read["id"].to_pylist(), read["values"].to_pylist(), strict=True))
        assert found == rows_of(table)
    assert pq.read_table(tmp_path / "slots.parquet").equals(arrow)


def test_a_checkpoint_of_changes_and_the_one_it_needs(tmp_path: Path, table: Table) -> None:
    _, frozen = checkpoint(tmp_path, 1, table)
    table.update(np.arange(5), np.ones((5, 3), np.float32), learning_rate=0.5)
    _, later = checkpoint(tmp_path, 2, table, base="version-1", since=frozen)
    table.update(np.arange(3), np.ones((3, 3), np.float32), learning_rate=0.5)
    newest, _ = checkpoint(tmp_path, 3, table, base="version-2", since=later)
    with elasticdl.open_snapshot(newest) as snapshot:
        ids, values = snapshot.table("user").to_numpy()
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == rows_of(table)
    # Of them the newest is to be kept, and with it what it needs.
    checkpoint(tmp_path, 4, table)
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"version-{n}" for n in range(1, 5)]
    prune(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["version-4"]


def test_a_base_that_is_not_there(tmp_path: Path, table: Table) -> None:
    path, _ = checkpoint(tmp_path, 2, table, base="version-1")
    with pytest.raises(UserError, match="only what changed since version-1, which is not beside it"):
        elasticdl.open_snapshot(path)


def test_a_single_file(tmp_path: Path, table: Table) -> None:
    path, _ = checkpoint(tmp_path, 7, table)
    with elasticdl.open_snapshot(path / "ps-0-of-2.edl") as snapshot:
        ids, _ = snapshot.table("user").to_numpy()
    assert 0 < len(ids) < 100


def test_names_that_are_not_there(tmp_path: Path, table: Table) -> None:
    checkpoint(tmp_path, 7, table)
    with elasticdl.open_snapshot(tmp_path) as snapshot:
        with pytest.raises(UserError, match=r"no table 'usr'\. Did you mean"):
            snapshot.table("usr")
        with pytest.raises(UserError, match="no 'kernel' in trainable"):
            snapshot.array("kernel")
        with pytest.raises(UserError, match=r"Cannot write .*x\.parquet: No such file"):
            snapshot.table("user").to_parquet(tmp_path / "nowhere" / "x.parquet")
    with pytest.raises(UserError, match="no checkpoint at"):
        elasticdl.open_snapshot(tmp_path / "nowhere")
