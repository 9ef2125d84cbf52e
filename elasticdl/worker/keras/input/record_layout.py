"""The layout of a reader's records as arrays: byte strings, rows of text, or named columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.reader import Metadata, Record, RecordKind
from elasticdl.errors import UserError

Array = NDArray[Any]

# NumPy's way to hold strings of any length, which TensorFlow takes for its string tensors.
TEXT: np.dtype[Any] = np.dtype(object)


@dataclass(frozen=True, kw_only=True)
class Column:
    """An array of a chunk; `shape` is that of one record's value, with None where it may differ."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of a reader's records. Bytes and rows are one column without a name."""

    kind: RecordKind
    columns: tuple[Column, ...]

    def shapes(self, record: Record) -> tuple[tuple[int, ...], ...]:
        """Returns the shapes of a record; only records with the same shapes fit in one chunk."""
        if self.kind != "columns":
            return ()
        return tuple(np.shape(record.get(column.name)) for column in self.columns if column.shape)

    def arrays(self, records: list[Record]) -> list[Array]:
        """Returns an array for each column. Raises `UserError` for records that are not like the first one."""
        if self.kind == "bytes":
            texts = np.empty(len(records), TEXT)
            texts[:] = records
            return [texts]
        if self.kind == "row":
            return [self._rows(records)]
        return [_column(column, records) for column in self.columns]

    def _rows(self, records: list[Record]) -> Array:
        width = self.columns[0].shape[0] or 0
        rows = np.empty((len(records), width), TEXT)
        for index, record in enumerate(records):
            if len(record) != width:
                raise UserError(f"A row has {len(record)} columns where {width} are expected: {record}.")
            rows[index, :] = record
        return rows


def layout_of(kind: RecordKind, metadata: Metadata, first: Record) -> Layout:
    """Returns the layout by the first record, and by the types in the metadata."""
    if kind == "bytes":
        return Layout(kind=kind, columns=(Column(name="", dtype=TEXT, shape=()),))
    if kind == "row":
        return Layout(kind=kind, columns=(Column(name="", dtype=TEXT, shape=(len(first),)),))
    dtypes = dict(zip(metadata.column_names, metadata.column_dtypes, strict=False))
    columns = tuple(
        Column(name=name, dtype=_dtype(dtypes.get(name), value), shape=(None,) * np.ndim(value))
        for name, value in first.items()
    )
    return Layout(kind=kind, columns=columns)


def _dtype(declared: str | None, value: Any) -> np.dtype[Any]:
    if declared in ("str", "bytes"):
        return TEXT
    found = np.dtype(declared) if declared else np.asarray(value).dtype
    return TEXT if found.kind in "OUS" else found


def _column(column: Column, records: list[Record]) -> Array:
    try:
        values = [record[column.name] for record in records]
    except KeyError:
        raise UserError(f"A record has no column {column.name}, which the first one has.") from None
    if not values:
        return np.zeros((0, *(0 for _ in column.shape)), column.dtype)
    if column.dtype == TEXT:
        texts = np.empty((len(values), *np.shape(values[0])), TEXT)
        for index, value in enumerate(values):
            texts[index] = b"" if value is None else value
        return texts
    if not column.shape and any(value is None for value in values):
        if column.dtype.kind != "f":
            raise UserError(f"Column {column.name} has an empty cell, and {column.dtype} no value for that.")
        values = [np.nan if value is None else value for value in values]
    try:
        return np.asarray(values, column.dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"Column {column.name} is not of type {column.dtype} throughout: {error}.") from None
