"""Named columns and their types: what records of all formats have in common when one is turned into another.

A record of whatever kind becomes a dict from column name to value here. What type a column has is found by looking at
all of its values: text cells that are all whole numbers are int64, all numbers float64, otherwise text. Empty cells,
nulls and features without values are the same thing, a missing value, and say nothing about the type.

Where only single values fit, in CSV, a column of lists becomes columns named `NAME[0]`, `NAME[1]`, …, and such columns
become one list again on the way back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elasticdl.data.example import decode_example
from elasticdl.data.reader import Reader, Record
from elasticdl.errors import UserError

Dtype = Literal["int64", "float32", "float64", "str", "bytes"]

# Only what is written back the same is a whole number: 007 and 05db are names.
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,18})\Z", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z|[-+]?(nan|inf|infinity)\Z", re.ASCII | re.IGNORECASE
)
_ELEMENT = re.compile(r"(.+)\[(\d+)\]\Z")
# From one type to the one that holds both.
_WIDER: dict[frozenset[Dtype], Dtype] = {
    frozenset({"int64", "float32"}): "float64",
    frozenset({"int64", "float64"}): "float64",
    frozenset({"float32", "float64"}): "float64",
    frozenset({"str", "bytes"}): "bytes",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    dtype: Dtype
    # How many values a record has here: 1 is a single value and no list, None a list of varying length.
    length: int | None


class Inference:
    """Finds the columns of records by looking at one after the other."""

    def __init__(self) -> None:
        self._dtypes: dict[str, Dtype | None] = {}
        self._lengths: dict[str, int | None] = {}
        self._records = 0

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            dtype, length = _type_of(name, value)
            known = self._dtypes.get(name)
            if dtype is not None and known is not None and dtype != known:
                wider = _WIDER.get(frozenset({dtype, known}))
                if wider is None and isinstance(value, Cell):
                    wider = "str"
                if wider is None:
                    raise UserError(
                        f"Column {name!r} is {known} in some records, but {dtype} in record {self._records}."
                    )
                dtype = wider
            self._dtypes[name] = dtype or known
            if length != 0:
                self._lengths[name] = length if self._lengths.get(name, length) == length else None
        self._records += 1

    def columns(self) -> list[Column]:
        return [
            Column(name=name, dtype=dtype or "str", length=self._lengths.get(name, 1))
            for name, dtype in self._dtypes.items()
        ]


class Cell(str):
    """A cell of text, whose type is what all cells of its column can be read as."""

    __slots__ = ()


def _type_of(name: str, value: Any) -> tuple[Dtype | None, int]:
    """The type of a value, None if it is missing, and how many there are in it."""
    if isinstance(value, Cell):
        if not value:
            return None, 1
        if _WHOLE.match(value) and -(2**63) <= int(value) < 2**63:
            return "int64", 1
        return ("float64", 1) if _NUMBER.match(value) else ("str", 1)
    if value is None:
        return None, 0
    if isinstance(value, (bytes, bytearray)):
        return "bytes" if _text(value) is None else "str", 1
    if isinstance(value, list) and value and isinstance(value[0], (Cell, bytes, str)):
        kinds = {_type_of(name, item)[0] for item in value} - {None}
        widest: Dtype | None = kinds.pop() if kinds else None
        for kind in kinds:
            widest = _WIDER.get(frozenset({widest, kind}), "str") if widest and kind else widest
        return widest, len(value)
    array = np.asarray(value)
    if array.size == 0:
        return None, 0
    if array.dtype.kind in "iub":
        return "int64", array.size
    if array.dtype.kind == "f":
        return ("float64" if array.dtype.itemsize == 8 else "float32"), array.size
    if array.dtype.kind in "US":
        return ("str" if array.dtype.kind == "U" else "bytes"), array.size
    raise UserError(
        f"Column {name!r} holds {type(value).__name__}, which cannot be converted.",
        hint="Numbers, booleans, text and bytes can, and lists of them.",
    )


def _text(value: bytes | bytearray) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


# -- records as dicts --------------------------------------------------------------------------------------


def as_columns(reader: Reader, records: Iterable[Record]) -> Iterable[Mapping[str, Any]]:
    """Records of any kind as dicts; cells of CSV are `Cell`s, those of `NAME[i]` a list of them."""
    if reader.kind == "columns":
        return records
    if reader.kind == "row":
        return _rows(reader, records)
    return _examples(records)


def _rows(reader: Reader, records: Iterable[Sequence[str]]) -> Iterable[Mapping[str, Any]]:
    names = reader.metadata.column_names
    for row in records:
        cells = names or [f"column_{number}" for number in range(len(row))]
        if len(set(cells)) != len(cells):
            raise UserError(f"Several columns of {reader.origin} have the same name.")
        yield _with_lists(dict(zip(cells, map(Cell, row), strict=True)))


def _with_lists(cells: dict[str, Cell]) -> dict[str, Any]:
    if not any(name.endswith("]") for name in cells):
        return dict(cells)
    record: dict[str, Any] = {}
    for name, cell in cells.items():
        element = _ELEMENT.match(name)
        if element is None:
            record[name] = cell
            continue
        values = record.setdefault(element[1], [])
        if not isinstance(values, list) or len(values) != int(element[2]):
            raise UserError(f"Column {name!r} is not the next element of {element[1]!r}.")
        values.append(cell)
    return record


def _examples(records: Iterable[bytes]) -> Iterable[Mapping[str, Any]]:
    for number, record in enumerate(records):
        try:
            features = decode_example(record)
        except ValueError as error:
            raise UserError(
                f"Record {number} is not an Example, so it has no columns: {error}.",
                hint="Such records can be converted between recordio and tfrecord only.",
            ) from error
        yield {
            name: value[0] if len(value) == 1 else (None if len(value) == 0 else value)
            for name, value in features.items()
        }


def typed(column: Column, value: Any) -> Any:
    """A value as Python or NumPy has it: cells become what their column is, lists of numbers arrays."""
    if value is None or (isinstance(value, Cell) and not value):
        return None
    if column.length == 1:
        return _single(column, value)
    if isinstance(value, list) and value and isinstance(value[0], Cell) and "" in value:
        return _with_gaps(column, value)
    if column.dtype in ("str", "bytes"):
        values = (
            value if isinstance(value, (list, tuple)) else np.atleast_1d(np.asarray(value, object)).tolist()
        )
        return [_single(column, item) for item in values]
    return np.asarray(value, dtype=column.dtype).reshape(-1)


def _with_gaps(column: Column, cells: list[Cell]) -> Any:
    """A list of cells of which some are empty."""
    if not any(cells):
        return None
    if column.dtype == "int64":
        raise UserError(
            f"Some elements of the list {column.name!r} are missing, and int64 has no value for that."
        )
    if column.dtype in ("str", "bytes"):
        return [_single(column, cell) for cell in cells]
    return np.array([float(cell) if cell else np.nan for cell in cells], dtype=column.dtype)


def _single(column: Column, value: Any) -> Any:
    if column.dtype == "str":
        return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)
    if column.dtype == "bytes":
        return value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(value, (list, np.ndarray)):
        value = np.asarray(value).reshape(-1)[0]
    if column.dtype == "int64":
        return int(value)
    return np.float32(value) if column.dtype == "float32" else float(value)
