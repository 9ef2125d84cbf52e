"""Describes a data set for users: its files, its columns, its first records, and its damaged parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.column_types import Inference, as_columns
from elasticdl.data.files.multi_file import FilesReader
from elasticdl.data.formats.image_folder import ImageFiles
from elasticdl.data.integrity import records_and_damage
from elasticdl.data.reader import BadRange, BadRecords, Reader, Record
from elasticdl.errors import UserError

# Types of columns are inferred from so many records.
_LOOKED_AT = 1000
_SHOWN_CHARACTERS = 60
_SHOWN_VALUES = 6


@dataclass(frozen=True, kw_only=True)
class DescribedFile:
    path: str
    samples: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DescribedColumn:
    name: str
    dtype: str
    values: str  # how many a record has: "1", "64", or "varying"


@dataclass(frozen=True, kw_only=True)
class Description:
    origin: str
    format: str
    samples: int
    bytes: int
    files: tuple[DescribedFile, ...]
    columns: tuple[DescribedColumn, ...]
    class_names: tuple[str, ...]
    # Each record as its columns, shortened to be read.
    first_records: tuple[Mapping[str, str], ...]
    # Only if asked for: every record was read, and this is what could not be.
    checked: bool
    bad: tuple[BadRange, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def describe(
    reader: Reader,
    *,
    records: int = 3,
    check: bool = False,
    progress: Callable[[int], None] = lambda records: None,
) -> Description:
    """Looks at the first records, and with `check` at all of them."""
    files = _files(reader)
    bad: list[BadRange] = []
    if check:
        for record in records_and_damage(reader):
            if isinstance(record, BadRange):
                bad.append(record)
                progress(record.end - record.start)
            else:
                progress(1)
    first = _first(reader)
    return Description(
        origin=reader.origin,
        format=reader.format if isinstance(reader, FilesReader) else "custom",
        samples=len(reader),
        bytes=sum(file.bytes for file in files),
        files=files,
        columns=_columns(reader, first),
        class_names=reader.metadata.class_names,
        first_records=tuple(_shown(reader, record) for record in first[:records]),
        checked=check,
        bad=tuple(bad),
    )


def _files(reader: Reader) -> tuple[DescribedFile, ...]:
    if not isinstance(reader, FilesReader):
        return ()
    found: list[DescribedFile] = []
    for file in reader.files:
        paths = file.paths() if isinstance(file, ImageFiles) else [file.path]
        each = 1 if isinstance(file, ImageFiles) else len(file)
        found += [DescribedFile(path=str(path), samples=each, bytes=_size(path)) for path in paths]
    return tuple(found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _first(reader: Reader) -> list[Record]:
    """The first records, as far as they can be read."""
    found: list[Record] = []
    # Records may be large, images for instance; a few show as much.
    wanted = min(len(reader), _LOOKED_AT if reader.kind != "columns" else 100)
    try:
        found.extend(reader.read(0, wanted))
    except BadRecords:
        return found
    return found


def _columns(reader: Reader, first: list[Record]) -> tuple[DescribedColumn, ...]:
    inference = Inference()
    try:
        for record in as_columns(reader, first):
            inference.add(record)
    except UserError:
        # Records that are no Examples, or columns of a kind that cannot be converted.
        names, dtypes = reader.metadata.column_names, reader.metadata.column_dtypes
        return tuple(
            DescribedColumn(name=name, dtype=dtype, values="1")
            for name, dtype in zip(names, dtypes, strict=True)
        )
    return tuple(
        DescribedColumn(
            name=column.name,
            dtype=column.dtype,
            values="varying" if column.length is None else str(column.length),
        )
        for column in inference.columns()
    )


def _shown(reader: Reader, record: Record) -> Mapping[str, str]:
    try:
        (columns,) = as_columns(reader, [record])
    except UserError:
        return {"record": _value(record)}
    return {name: _value(value) for name, value in columns.items()}


def _value(value: Any) -> str:
    if isinstance(value, (list, np.ndarray)) and np.size(value) != 1:
        flat = value if isinstance(value, list) else value.reshape(-1)
        shown = ", ".join(_value(item) for item in flat[:_SHOWN_VALUES])
        more = f", … {len(flat)} in all" if len(flat) > _SHOWN_VALUES else ""
        return f"[{shown}{more}]"
    if isinstance(value, (list, np.ndarray)):
        return _value(value[0] if isinstance(value, list) else value.reshape(-1)[0])
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    if isinstance(value, (bytes, bytearray)):
        return _bytes(bytes(value))
    text = str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… {len(text)} characters"


def _bytes(value: bytes) -> str:
    try:
        text = value[:_SHOWN_CHARACTERS].decode()
        if text.isprintable():
            return text if len(value) <= _SHOWN_CHARACTERS else f"{text}… {len(value)} bytes"
    except UnicodeDecodeError:
        pass
    return (
        f"{value[:8].hex(' ')}… {len(value)} bytes"
        if len(value) > 8
        else f"{value.hex(' ')} ({len(value)} bytes)"
    )
