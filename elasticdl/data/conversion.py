"""Converts data sets from one format to another.

Between RecordIO and TFRecord records are copied as they are, byte by byte; between CSV files rows are. Everything
else goes through named columns: a column of a table is a feature of an Example, and back. That needs the columns'
types before the first record is written, so the data is read twice. Images become Examples with `image` (the bytes
of the file), `label` and `path`; idx files Examples with `image` (float32) and `label`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.column_types import Column, Inference, as_columns, typed
from elasticdl.data.dataset_writer import (
    SUFFIXES,
    RecordWriter,
    SplitWriter,
    check_compression,
    file_writer,
    new_folder,
)
from elasticdl.data.files.data_file import COMPRESSED_SUFFIXES
from elasticdl.data.files.multi_file import FilesReader
from elasticdl.data.format_parameters import nearest
from elasticdl.data.integrity import good_records
from elasticdl.data.reader import BadRange, Reader, Record
from elasticdl.errors import UserError

_BYTES_FORMATS = ("recordio", "tfrecord")
Progress = Callable[[str, int], None]
_IMAGE_COLUMNS = [
    Column(name="image", dtype="bytes", length=1),
    Column(name="label", dtype="int64", length=1),
    Column(name="path", dtype="str", length=1),
]


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The result of a conversion: what was written, and what could not be read."""

    destination: Path
    records: int
    bad: tuple[BadRange, ...]


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The way to write records of one kind: `shape` converts each, files begin with `header` or have a `schema`."""

    shape: Callable[[Any], Any]
    header: tuple[str, ...] = ()
    schema: Any = None


def convert(
    reader: Reader,
    destination: Path,
    *,
    format: str = "",  # noqa: A002
    compression: str = "",
    records_per_file: int = 0,
    max_bad_records: int = 0,
    overwrite: bool = False,
    progress: Progress = lambda doing, records: None,
) -> Conversion:
    """Writes the samples of a reader to a file, or to a folder of files with so many records each.

    The destination is a file if its name ends with a suffix of its format, else a folder. `progress` is called with
    the current activity and the number of records done since its last call.
    """
    chosen, single = _destination(destination, format)
    if single and records_per_file:
        raise UserError(
            f"{destination} is one file, so it has no number of records per file.",
            hint="Name a folder as the destination.",
        )
    check_compression(chosen, compression)
    if single and destination.exists() and not overwrite:
        raise UserError(f"{destination} exists.", hint="Add --overwrite to replace it.")
    target = _target(reader, chosen, max_bad_records, progress)
    bad: list[BadRange] = []
    records = _counted(good_records(reader, max_bad_records=max_bad_records, bad=bad), "converting", progress)
    shaped = map(target.shape, records if _raw(reader, chosen) else as_columns(reader, records))

    def opening(path: Path) -> RecordWriter:
        return file_writer(chosen, path, compression=compression, header=target.header, schema=target.schema)

    if single:
        destination.parent.mkdir(parents=True, exist_ok=True)
        count = _write(SplitWriter(lambda number: destination, 1 << 62, opening), shaped)
    else:
        suffix = SUFFIXES[chosen] + (".gz" if compression == "gzip" and chosen in ("csv", "tfrecord") else "")
        with new_folder(destination, overwrite=overwrite) as folder:
            writer = SplitWriter(
                lambda number: folder / f"data-{number:05d}{suffix}", records_per_file or 1 << 62, opening
            )
            count = _write(writer, shaped)
    if not count:
        raise UserError(f"None of the {len(reader)} samples of {reader.origin} can be read.")
    return Conversion(destination=destination, records=count, bad=tuple(bad))


def _destination(destination: Path, format: str) -> tuple[str, bool]:  # noqa: A002
    name = destination.name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    from_name = next((known for known, suffix in SUFFIXES.items() if name.endswith(suffix)), "")
    if format and format not in SUFFIXES:
        raise UserError(f"Data cannot be converted to {format!r}.", hint=nearest(format, SUFFIXES))
    if not (format or from_name):
        raise UserError(
            f"Cannot tell from {destination} what to convert to.",
            hint=f"Name it with --format: {', '.join(SUFFIXES)}.",
        )
    if format and from_name and format != from_name:
        raise UserError(f"{destination} is named like {from_name}, but --format is {format}.")
    return format or from_name, bool(from_name) and not destination.is_dir()


def _raw(reader: Reader, format: str) -> bool:  # noqa: A002
    """Whether records are copied as they are."""
    return (reader.kind == "bytes" and format in _BYTES_FORMATS) or (reader.kind == "row" and format == "csv")


def _target(reader: Reader, format: str, max_bad_records: int, progress: Progress) -> _Target:  # noqa: A002
    if _raw(reader, format):
        return _Target(shape=lambda record: record, header=reader.metadata.column_names)
    source = reader.format if isinstance(reader, FilesReader) else ""
    if source == "parquet" and format == "parquet":
        assert isinstance(reader, FilesReader)
        names = reader.metadata.column_names
        fields: Any = reader.files[0]
        import pyarrow

        return _Target(
            shape=lambda record: record, schema=pyarrow.schema([fields.schema.field(name) for name in names])
        )
    columns = _IMAGE_COLUMNS if source == "images" else _columns(reader, max_bad_records, progress)
    if format in _BYTES_FORMATS:
        images = source == "idx"
        return _Target(shape=lambda record: _example(columns, record, images))
    if format == "parquet":
        return _Target(shape=lambda record: _row(columns, record), schema=_schema(columns))
    return _Target(shape=lambda record: _cells(columns, record), header=tuple(_header(columns)))


def _columns(reader: Reader, max_bad_records: int, progress: Progress) -> list[Column]:
    inference = Inference()
    records = good_records(reader, max_bad_records=max_bad_records, bad=[])
    for record in as_columns(reader, _counted(records, "looking at types", progress)):
        inference.add(record)
    return inference.columns()


def _counted(records: Iterable[Record], doing: str, progress: Progress) -> Iterator[Record]:
    for record in records:
        yield record
        progress(doing, 1)


def _write(writer: SplitWriter, records: Iterable[Any]) -> int:
    count = 0
    with writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _example(columns: list[Column], record: Mapping[str, Any], images: bool) -> dict[str, Any]:
    example = _row(columns, record)
    if images:
        example["image"] = np.asarray(record["image"], np.float32)
    return example


def _row(columns: list[Column], record: Mapping[str, Any]) -> dict[str, Any]:
    return {column.name: typed(column, record.get(column.name)) for column in columns}


def _schema(columns: list[Column]) -> Any:
    import pyarrow

    kinds = {
        "int64": pyarrow.int64(),
        "float32": pyarrow.float32(),
        "float64": pyarrow.float64(),
        "str": pyarrow.string(),
        "bytes": pyarrow.binary(),
    }
    return pyarrow.schema(
        [
            pyarrow.field(
                column.name, kinds[column.dtype] if column.length == 1 else pyarrow.list_(kinds[column.dtype])
            )
            for column in columns
        ]
    )


def _header(columns: list[Column]) -> Iterator[str]:
    for column in columns:
        if column.length is None:
            raise UserError(
                f"Column {column.name!r} holds lists of varying length, which have no place in CSV.",
                hint="Convert to parquet, recordio or tfrecord.",
            )
        if column.dtype == "bytes":
            raise UserError(
                f"Column {column.name!r} holds bytes that are not text, which have no place in CSV.",
                hint="Convert to parquet, recordio or tfrecord.",
            )
        if column.length == 1:
            yield column.name
        else:
            yield from (f"{column.name}[{number}]" for number in range(column.length))


def _cells(columns: list[Column], record: Mapping[str, Any]) -> list[Any]:
    cells: list[Any] = []
    for column in columns:
        value = typed(column, record.get(column.name))
        if column.length == 1:
            cells.append("" if value is None else value)
        else:
            cells += [""] * (column.length or 0) if value is None else [str(item) for item in value]
    return cells
