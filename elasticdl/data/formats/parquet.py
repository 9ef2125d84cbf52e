"""Parquet: a record is a dict from column name to value; the row groups of a file are its index.

Only the columns that are asked for are read: `columns=[a,b]` in --data_reader_params. Values are what Python
has for them (int, float, str, bytes, bool, None for null), lists of numbers are NumPy arrays. A row group
is read as one piece and kept for the shards that follow, unless it is very large: then rows stream out of
it.

A file's footer holds the counts of all its row groups, so a file without one cannot be read at all; a row
group that cannot be decoded, or has a page with a wrong checksum, is bad as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.data.files.cache_paths import Stamp
from elasticdl.data.files.multi_file import Damaged, DataFile, PieceCache
from elasticdl.data.format_parameters import nearest
from elasticdl.data.reader import Metadata
from elasticdl.data.remote.listing import LazyCopy
from elasticdl.errors import UserError

MAGIC = b"PAR1"
# Row groups above this (in memory, as their writer says) are streamed.
_WHOLE_BYTES = 64 << 20
_STREAM_ROWS = 4096


class ParquetFile(DataFile):
    """A Parquet file; its records are dicts."""

    def __init__(
        self, path: Path, columns: Sequence[str], cache: PieceCache, copy: LazyCopy | None = None
    ) -> None:
        """`copy`: the file is in a store, and is copied to the path when rows of it are read."""
        self.path = path
        self._cache = cache
        self._copy = copy
        if copy is None:
            with disk_errors(path, doing="read"):
                self._stamp = Stamp.of(path)
            self._footer = _footer(path, path)
        else:
            with copy.open_remote() as file:
                self._footer = _footer(path, file)
        try:
            self.schema = self._footer.schema.to_arrow_schema()
            names = self.schema.names
        except UnicodeDecodeError as error:
            raise _unreadable(path, error) from error
        self._columns = _checked(columns, names, path) if columns else None
        groups = [self._footer.row_group(number).num_rows for number in range(self._footer.num_row_groups)]
        self._starts = np.concatenate(([0], np.cumsum(groups, dtype=np.int64)))

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def metadata(self) -> Metadata:
        names = self._columns or self.schema.names
        return Metadata(
            column_names=tuple(names),
            column_dtypes=tuple(_dtype(self.schema.field(name).type) for name in names),
        )

    def read(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < end:
            first = int(self._starts[group])
            stop = min(end, int(self._starts[group + 1]))
            for table in self._tables(group, start - first, stop - first):
                names = table.column_names
                columns = [_values(column) for column in table.columns]
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))
            start = stop
            group += 1

    def _tables(self, group: int, start: int, end: int) -> Iterator[Any]:
        """The rows [start, end) of a row group, as tables one after the other."""
        import pyarrow

        if start == end:
            return
        try:
            if self._footer.row_group(group).total_byte_size > _WHOLE_BYTES:
                yield from self._streamed(group, start, end)
                return
            key = (self.path, group)
            table = self._cache.get(key)
            if table is None:
                with self._open() as file:
                    table = file.read_row_group(group, columns=self._columns, use_threads=False)
                if end - start < len(table):
                    self._cache.put(key, table, table.nbytes)
            yield table.slice(start, end - start)
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            offset = self._footer.row_group(group).column(0).data_page_offset
            raise Damaged(
                start=int(self._starts[group]),
                end=int(self._starts[group + 1]),
                where=f"{self.path}, byte {offset}, row group {group}",
                reason=str(error).splitlines()[0],
            ) from error

    def _streamed(self, group: int, start: int, end: int) -> Iterator[Any]:
        import pyarrow

        at = 0
        with self._open() as file:
            batches = file.iter_batches(_STREAM_ROWS, row_groups=[group], columns=self._columns)
            for batch in batches:
                begin, stop = max(0, start - at), min(len(batch), end - at)
                if begin < stop:
                    yield pyarrow.Table.from_batches([batch]).slice(begin, stop - begin)
                at += len(batch)
                if at >= end:
                    return

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        # Reopened for every range: such a file object must not be used by two threads, and with the
        # footer in hand opening costs little.
        import pyarrow.parquet

        if self._copy is not None:
            self._copy.fetch()
        elif Stamp.of(self.path) != self._stamp:
            raise UserError(
                f"{self.path} has changed while it was being read.",
                hint="Data must stay as it is as long as a job uses it. Start the job again.",
            )
        with pyarrow.parquet.ParquetFile(
            self.path, metadata=self._footer, page_checksum_verification=True
        ) as file:
            yield file


def _footer(path: Path, source: Any) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        with disk_errors(path, doing="read"):
            return pyarrow.parquet.read_metadata(source)
    except UserError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno:
            raise
        raise _unreadable(path, cause or error) from cause
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        # The second for names and messages with damage in them.
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> UserError:
    return UserError(
        f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}",
        hint="The end of a Parquet file says what is in it. The file is of another format, or was cut short.",
    )


def _checked(columns: Sequence[str], known: Sequence[str], path: Path) -> list[str]:
    for column in columns:
        if column not in known:
            raise UserError(f"{path} has no column {column!r}.", hint=nearest(column, known))
    return list(columns)


def _dtype(kind: Any) -> str:
    """The NumPy dtype of a column, as `Metadata` tells it; that of the elements for lists."""
    from pyarrow import types

    while _is_list(kind):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "str"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    # Arrow names its numbers as NumPy does, but for these.
    name = {"float": "float32", "double": "float64", "halffloat": "float16"}.get(str(kind), str(kind))
    if types.is_boolean(kind) or _is_number(kind):
        return name
    return "object"


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _values(column: Any) -> list[Any]:
    """The values of a column, one a row."""
    import pyarrow
    from pyarrow import types

    chunks = column.chunks
    array = chunks[0] if len(chunks) == 1 else pyarrow.concat_arrays(chunks)
    # By way of NumPy, which makes Python's values several times as fast as Arrow does.
    values: list[Any]
    if _is_number(array.type) or types.is_boolean(array.type):
        # Without gaps, because NumPy would make floats of integers with some.
        whole = array.fill_null(0 if _is_number(array.type) else False) if array.null_count else array
        values = whole.to_numpy(zero_copy_only=False).tolist()
        for gap in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else ():
            values[gap] = None
    elif types.is_string(array.type) or types.is_binary(array.type):
        values = array.to_numpy(zero_copy_only=False).tolist()
    elif not array.null_count and _is_list(array.type) and _is_number(array.type.value_type):
        flat = array.flatten()
        numbers = flat.to_numpy(zero_copy_only=False)
        ends = np.cumsum(array.value_lengths().to_numpy(zero_copy_only=False))
        values = array.to_pylist() if flat.null_count else np.split(numbers, ends[:-1])
    else:
        values = array.to_pylist()
    return values
