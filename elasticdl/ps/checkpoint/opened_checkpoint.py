"""A checkpoint, opened from Python: its parameters as NumPy arrays, its tables as Arrow, NumPy or Parquet.

    with elasticdl.open_snapshot("checkpoints/clicks") as snapshot:
        snapshot.array("dense/kernel")                  a parameter
        ids, values = snapshot.table("user").to_numpy()
        snapshot.table("user").to_parquet("user.parquet")

A table of many rows need not fit into memory: `batches` gives it bucket by bucket, and Parquet is written that way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.dataset_writer import Sink
from elasticdl.data.files.atomic_file import AtomicFile
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.ps.checkpoint.array_file import ArrayFile
from elasticdl.ps.checkpoint.checkpoint_folders import SUFFIX, Checkpoint, chain, find_checkpoint
from elasticdl.ps.checkpoint.resharding import TABLE_PREFIX, TRAINABLE
from elasticdl.ps.checkpoint.table_files import SavedTables, TableDescription
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import TableRows

if TYPE_CHECKING:
    import pyarrow

# The rows of a group of a Parquet file; only the last may have fewer.
_GROUP_ROWS = 1 << 16


def open_snapshot(path: str | os.PathLike[str]) -> OpenSnapshot:
    """A checkpoint: a `version-N` folder, the newest in a `--checkpoint_dir`, an export, or a single file of one.

    Raises `UserError` if there is none, or if it is damaged.
    """
    place = Path(path)
    if place.is_file() and place.suffix == SUFFIX:
        return OpenSnapshot([[place]])
    found = chain(find_checkpoint(str(place)))
    return OpenSnapshot([each.data_files() for each in found], found)


class OpenSnapshot:
    """Files stay open until it is closed; what was read is the caller's own."""

    def __init__(self, files: Sequence[Sequence[Path]], checkpoints: Sequence[Checkpoint] = ()) -> None:
        """The files of each checkpoint that is needed, oldest first; and these, unless it is a file by itself."""
        self.checkpoints = list(checkpoints)
        self.step = checkpoints[-1].manifest.step if checkpoints else None
        self._stack = contextlib.ExitStack()
        try:
            self._tables = self._stack.enter_context(SavedTables(files))
            self._files = [self._stack.enter_context(ArrayFile(file)) for file in files[-1]]
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> OpenSnapshot:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Facts that go with the numbers, such as the optimizer."""
        return {key: value for file in self._files for key, value in file.attributes.items()}

    @property
    def arrays(self) -> Mapping[str, list[str]]:
        """The names of parameters (`trainable`), state, optimizer slots, …, by group."""
        found: dict[str, list[str]] = {}
        for file in self._files:
            for group, entries in file.entries.items():
                if not group.startswith(TABLE_PREFIX):
                    found.setdefault(group, []).extend(entries)
        return found

    def array(self, name: str, *, group: str = TRAINABLE) -> Array:
        for file in self._files:
            if name in file.entries.get(group, {}):
                return file.read(group, name)
        known = self.arrays.get(group, [])
        raise UserError(
            f"The checkpoint has no {name!r} in {group}.{did_you_mean(name, known)}",
            hint=f"Groups are: {', '.join(self.arrays) or 'none'}.",
        )

    @property
    def tables(self) -> list[str]:
        return sorted(self._tables.descriptions)

    def table(self, name: str) -> SavedTable:
        description = self._tables.descriptions.get(name)
        if description is None:
            raise UserError(
                f"The checkpoint has no table {name!r}.{did_you_mean(name, self.tables)}",
                hint=f"It has: {', '.join(self.tables) or 'none'}.",
            )
        return SavedTable(self._tables, description)


class SavedTable:
    """The rows of one table. What was never trained has no row: see the table's initializer."""

    def __init__(self, tables: SavedTables, description: TableDescription) -> None:
        self.description = description
        self._tables = tables

    @property
    def name(self) -> str:
        return self.description.spec.name

    @property
    def width(self) -> int:
        return self.description.spec.width

    @property
    def rows(self) -> int:
        return sum(self._tables.count(self.name, bucket) for bucket in range(self.description.buckets))

    @property
    def bytes(self) -> int:
        """Returns the bytes on disk, of all checkpoints that it needs."""
        return self._tables.bytes(self.name)

    def parts(self) -> Iterator[TableRows]:
        """The rows by bucket."""
        for bucket in range(self.description.buckets):
            rows = self._tables.rows(self.name, bucket)
            if rows is not None and len(rows.ids):
                yield rows

    def to_numpy(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids, and a row of values for each."""
        parts = list(self.parts())
        ids = np.concatenate([part.ids for part in parts]) if parts else np.empty(0, np.int64)
        values = [part.values for part in parts] or [np.empty((0, self.width), np.float32)]
        return ids, np.concatenate(values)

    def schema(self, *, slots: bool = False) -> pyarrow.Schema:
        """An id, its values as a list of the table's width, and with `slots` a list for each of the optimizer's.

        Slots have their names; those of the user's own that would be the first two have `slot_` before it.
        """
        import pyarrow as pa

        numbers = pa.list_(pa.float32(), self.width)
        fields = [pa.field("id", pa.int64(), nullable=False), pa.field("values", numbers, nullable=False)]
        if slots:
            columns = _columns(self.description.slot_names, taken=("id", "values"))
            fields += [pa.field(name, numbers, nullable=False) for name in columns]
        return pa.schema(fields, metadata={"elasticdl.table": self.name})

    def batches(self, *, slots: bool = False) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        schema = self.schema(slots=slots)

        def lists(rows: Array) -> Any:
            flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, self.width)

        for part in self.parts():
            columns = [pa.array(part.ids), lists(part.values)]
            if slots:
                assert part.slots is not None
                columns += [lists(part.slots[:, n]) for n in range(len(self.description.slot_names))]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def to_arrow(self, *, slots: bool = False) -> pyarrow.Table:
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches(slots=slots)), schema=self.schema(slots=slots))

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        slots: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Writes a file, which appears under its name when it is complete, and returns how many rows it has.

        `progress` is called with the numbers of rows written. Raises `UserError` if they cannot be.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema, rows = self.schema(slots=slots), 0
        with AtomicFile(Path(path)) as file:
            sink = pa.PythonFile(Sink(file), mode="w")
            # Numbers that were learned hardly ever repeat: a dictionary of them would only cost time.
            with pq.ParquetWriter(sink, schema, use_dictionary=False, write_page_checksum=True) as writer:
                for table in _in_groups(self.batches(slots=slots), schema):
                    writer.write_table(table, row_group_size=len(table))
                    rows += len(table)
                    if progress is not None:
                        progress(len(table))
        return rows


def _columns(names: Sequence[str], *, taken: Sequence[str]) -> list[str]:
    """The names of columns, of which no two may be the same. The given ones are different already."""
    found = []
    for name in names:
        column = name
        while column in taken or (column != name and column in names):
            column = f"slot_{column}"
        found.append(column)
    return found


def _in_groups(batches: Iterator[pyarrow.RecordBatch], schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    """Small batches put together."""
    import pyarrow as pa

    waiting: list[pyarrow.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting, schema=schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)
