"""The interface that every source of samples has: a length, and the records of a range of indices.

Shards are ranges of sample indices, so a reader must get to any index without reading what lies before it.
Formats that cannot do so by themselves get an index, built once and cached (see `record_index.py`).
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticdl.errors import UserError

# bytes: each record is one byte string (RecordIO, TFRecord).
# row: each record is a list of strings, one a column (CSV).
# columns: each record is a dict from column name to value (Parquet, image folders).
RecordKind = Literal["bytes", "row", "columns"]
Record = Any


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The description of a reader's records, the third argument of `feed`."""

    column_names: tuple[str, ...] = ()
    # NumPy dtype names, one a column; "str" for text, "bytes" for raw bytes.
    column_dtypes: tuple[str, ...] = ()
    # Image folders: the name of each class, in the order of the label numbers.
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BadRange:
    """Samples that cannot be read: which, where they lie, and why."""

    start: int
    end: int
    where: str
    reason: str

    def __str__(self) -> str:
        return f"samples [{self.start}, {self.end}) at {self.where}: {self.reason}"


class BadRecords(UserError):
    """A range of samples could not be read. The reader can go on behind it."""

    def __init__(self, bad: BadRange) -> None:
        super().__init__(
            f"Corrupt data: {bad}.",
            hint="Repair the file, or allow so many bad samples with --max_bad_records.",
        )
        self.bad = bad


@dataclass(kw_only=True)
class Reader(abc.ABC):
    """A data set whose samples have the indices 0 to len - 1."""

    origin: str
    kind: RecordKind = "bytes"
    metadata: Metadata = field(default_factory=Metadata)

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def read(self, start: int, end: int) -> Iterator[Record]:
        """The records of [start, end), in order.

        Raises `BadRecords` where the data is corrupt; reading again from the end of its range goes on
        behind it.
        """

    def columns(self, start: int, end: int) -> Mapping[str, Any] | None:
        """The records of [start, end) as an array a column, where they are there as such; None: they are not.

        Raises what `read` raises.
        """
        return None
