"""Parquet: dicts out of row groups, only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats import parquet
from tests.data.conftest import ReadThrough

int64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(100), pa.int64()),
            "x": pa.array([number / 2 for number in range(100)], pa.float32()),
            "name": [f"n{number}" for number in range(100)],
            "raw": [bytes([number]) for number in range(100)],
            "vector": pa.array([[number, number + 1] for number in range(100)], pa.list_(pa.float32())),
            "maybe": pa.array([None if number % 3 else number for number in range(100)], pa.int32()),
        }
    )


def test_records_are_dicts(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    reader = open_reader(str(tmp_path))
    assert reader.kind == "columns"
    assert len(reader) == 100
    (record,) = reader.read(42, 43)
    assert np.array_equal(record.pop("vector"), np.array([42, 43], np.float32))
    assert record == {"id": 42, "x": 21.0, "name": "n42", "raw": b"*", "maybe": 42}


def test_metadata_names_columns_and_types(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    metadata = open_reader(str(tmp_path)).metadata
    assert metadata.column_names == ("id", "x", "name", "raw", "vector", "maybe")
    assert metadata.column_dtypes == ("int64", "float32", "str", "bytes", "float32", "int32")


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.none() | int64, st.text(max_size=5)), min_size=1, max_size=50),
    group=st.integers(1, 20),
    data=st.data(),
)
def test_any_range(
    fresh: Callable[[str], Path], rows: list[tuple[int | None, str]], group: int, data: st.DataObject
) -> None:
    path = fresh("x.parquet")
    columns = {"a": pa.array([row[0] for row in rows], pa.int64()), "b": pa.array([row[1] for row in rows])}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    reader = open_reader(str(path))
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    assert list(reader.read(start, end)) == [{"a": a, "b": b} for a, b in rows[start:end]]


def test_row_groups_too_large_to_hold_are_streamed(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=60)
    monkeypatch.setattr(parquet, "_WHOLE_BYTES", 10)
    monkeypatch.setattr(parquet, "_STREAM_ROWS", 8)
    reader = open_reader(str(tmp_path))
    assert [record["id"] for record in reader.read(5, 95)] == list(range(5, 95))


@pytest.mark.parametrize("given", ["[x,id]", "x;id", 'x,"id"'])
def test_only_the_columns_asked_for(tmp_path: Path, table: pa.Table, given: str) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    reader = open_reader(str(tmp_path), {"columns": given})
    assert list(reader.read(2, 3)) == [{"x": 1.0, "id": 2}]
    assert reader.metadata.column_names == ("x", "id")


def test_a_column_that_is_not_there(tmp_path: Path, table: pa.Table, refused: Callable[..., str]) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    assert "no column 'nme'" in refused(tmp_path, {"columns": "nme"})
    assert "Did you mean name?" in refused(tmp_path, {"columns": "nme"})


def test_several_files_are_one(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table.slice(0, 30), tmp_path / "1.parquet")
    pq.write_table(table.slice(30), tmp_path / "2.parquet")
    assert [record["id"] for record in open_reader(str(tmp_path)).read(25, 35)] == list(range(25, 35))


def test_files_with_other_columns_do_not_fit(
    tmp_path: Path, table: pa.Table, refused: Callable[..., str]
) -> None:
    pq.write_table(table, tmp_path / "1.parquet")
    pq.write_table(table.drop_columns(["name"]), tmp_path / "2.parquet")
    assert "name is str and missing" in refused(tmp_path)


def test_a_damaged_row_group(
    tmp_path: Path, table: pa.Table, damage: Callable[..., Path], read_through: ReadThrough
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=25, write_page_checksum=True, compression="none")
    group = pq.read_metadata(path).row_group(1)
    # In the values of the first column, which begin behind the header of its page.
    offset = group.column(0).data_page_offset + group.column(0).total_compressed_size - 3
    damage(path, offset)
    good, bad = read_through(path)
    assert [(found.start, found.end) for found in bad] == [(25, 50)]
    assert str(path) in bad[0].where
    assert "row group 1" in bad[0].where
    assert [record["id"] for record in good] == [*range(25), *range(50, 100)]


def test_truncated_parquet_file_is_refused(
    tmp_path: Path, table: pa.Table, refused: Callable[..., str]
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(table, path)
    path.write_bytes(path.read_bytes()[:-20])
    message = refused(path)
    assert str(path) in message
    assert "cut short" in message
