"""Writing data sets: files of some format in a folder that is there when all of it is written.

A data set half written looks like a smaller one, so folders are filled under a hidden name and renamed at
the end; whatever goes wrong before, a full disk for instance, leaves nothing. Existing data is replaced
only if asked for, and only where the folder holds nothing but data files.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from elasticdl.data.example import encode_example
from elasticdl.data.files.atomic_file import AtomicFile, disk_errors, hidden_sibling
from elasticdl.data.format_parameters import nearest
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord_frames import frame
from elasticdl.errors import UserError

Record = Any
# Rows of Parquet are collected to row groups of this size: what a reader has to decode to get at one row.
_GROUP_ROWS = 4096
# The formats that can be written, the names of their files, and their compressions (first: the default).
SUFFIXES = {"recordio": ".recordio", "tfrecord": ".tfrecord", "csv": ".csv", "parquet": ".parquet"}
COMPRESSIONS = {
    "recordio": ("snappy", "none", "gzip"),
    "tfrecord": ("none", "gzip"),
    "csv": ("none", "gzip"),
    "parquet": ("snappy", "zstd", "gzip", "none"),
}


class RecordWriter(Protocol):
    """A file of records, complete when it is closed."""

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


def check_compression(format: str, compression: str) -> None:  # noqa: A002
    allowed = COMPRESSIONS[format]
    if compression and compression not in allowed:
        raise UserError(
            f"{format} files cannot be compressed with {compression!r}.", hint=nearest(compression, allowed)
        )


class ExampleWriter:
    """Records that are dicts, as Examples in RecordIO or TFRecord; byte strings as they are."""

    def __init__(self, inner: RecordWriter) -> None:
        self._inner = inner

    def write(self, record: Record) -> None:
        self._inner.write(record if isinstance(record, bytes) else encode_example(record))

    def close(self) -> None:
        self._inner.close()

    def discard(self) -> None:
        self._inner.discard()


class _Frames:
    """Bytes, with something around each, in a file that may be compressed as a whole."""

    def __init__(
        self, path: Path, compression: str, shape: Callable[[Any], bytes], head: bytes = b""
    ) -> None:
        self._file = AtomicFile(path)
        # Without a time in it, so that the same records make the same file.
        self._gzip = (
            gzip.GzipFile(fileobj=Sink(self._file), mode="wb", mtime=0) if compression == "gzip" else None
        )
        self._shape = shape
        self._put(head)

    def write(self, record: Record) -> None:
        self._put(self._shape(record))

    def _put(self, data: bytes) -> None:
        if self._gzip is not None:
            self._gzip.write(data)
        else:
            self._file.write(data)

    def close(self) -> None:
        if self._gzip is not None:
            self._gzip.close()
        self._file.close()

    def discard(self) -> None:
        self._file.discard()


class Sink(io.RawIOBase):
    """An AtomicFile as gzip wants it."""

    def __init__(self, file: AtomicFile) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


class _Rows:
    """CSV text of one row."""

    def __init__(self) -> None:
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")

    def __call__(self, row: Sequence[Any]) -> bytes:
        self._writer.writerow(row)
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode()


class ParquetWriter:
    """Dicts, as the rows of a Parquet file with the given Arrow schema. Its pages carry checksums."""

    def __init__(self, path: Path, schema: Any, compression: str = "snappy") -> None:
        import pyarrow
        import pyarrow.parquet

        self._pyarrow = pyarrow
        self._path = path
        self._schema = schema
        self._rows: list[Mapping[str, Any]] = []
        self._file = AtomicFile(path)
        self._sink = pyarrow.PythonFile(Sink(self._file), mode="w")
        self._writer = pyarrow.parquet.ParquetWriter(
            self._sink, schema, compression=compression, write_page_checksum=True
        )

    def write(self, record: Record) -> None:
        self._rows.append(record)
        if len(self._rows) >= _GROUP_ROWS:
            self._write_group()

    def write_table(self, table: Any) -> None:
        """Rows that are an Arrow table already."""
        self._write_group()
        self._writer.write_table(table, row_group_size=_GROUP_ROWS)

    def _write_group(self) -> None:
        if not self._rows:
            return
        try:
            table = self._pyarrow.Table.from_pylist(self._rows, schema=self._schema)
        except (self._pyarrow.ArrowException, TypeError) as error:
            raise UserError(f"A record does not fit the columns of {self._path}: {error}.") from error
        self._rows = []
        self._writer.write_table(table)

    def close(self) -> None:
        self._write_group()
        self._writer.close()
        self._file.close()

    def discard(self) -> None:
        self._file.discard()


def file_writer(
    format: str,  # noqa: A002
    path: Path,
    *,
    compression: str = "",
    header: Sequence[str] = (),
    schema: Any = None,
) -> RecordWriter:
    """A writer of one file. CSV takes rows, Parquet dicts of its schema, the others byte strings or dicts."""
    check_compression(format, compression)
    chosen: Any = compression or COMPRESSIONS[format][0]
    if format == "recordio":
        return ExampleWriter(RecordIOWriter(path, chosen))
    if format == "tfrecord":
        return ExampleWriter(_Frames(path, chosen, frame))
    if format == "csv":
        rows = _Rows()
        return _Frames(path, chosen, rows, rows(header) if header else b"")
    return ParquetWriter(path, schema, chosen)


class SplitWriter:
    """Records in as many files as needed: STEM-00000.recordio, STEM-00001.recordio, …"""

    def __init__(
        self, name: Callable[[int], Path], records_per_file: int, opening: Callable[[Path], RecordWriter]
    ) -> None:
        self._name = name
        self._opening = opening
        self._records_per_file = records_per_file
        self._writer: RecordWriter | None = None
        self._files = 0
        self._room = 0

    def write(self, record: Record) -> None:
        if self._writer is None or not self._room:
            self._next()
        self._room -= 1
        assert self._writer is not None
        self._writer.write(record)

    def _next(self) -> None:
        self.close()
        self._writer = self._opening(self._name(self._files))
        self._files += 1
        self._room = self._records_per_file

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except BaseException:
                writer.discard()
                raise

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill. What is in it appears under the path if the block ends well, and vanishes if not."""
    path = Path(os.path.abspath(path))
    check_replaceable(path, overwrite=overwrite)
    # A folder that exists may be a mount, which can be neither renamed nor filled from beside it.
    temporary = hidden_sibling(path / path.name if path.exists() else path)
    with disk_errors(path):
        temporary.mkdir(parents=True)
    try:
        with disk_errors(path):
            yield temporary
            if path.exists():
                _replace_content(path, temporary)
            else:
                os.rename(temporary, path)
    except UserError as error:
        if str(temporary) not in error.message:
            raise
        # The user knows the folder by the name it was to have.
        message = error.message.replace(str(temporary), str(path))
        raise UserError(message, hint=error.hint) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_content(path: Path, new: Path) -> None:
    old = hidden_sibling(path / path.name)
    old.mkdir()
    for child in [child for child in path.iterdir() if child not in (new, old)]:
        os.rename(child, old / child.name)
    for child in list(new.iterdir()):
        os.rename(child, path / child.name)
    shutil.rmtree(old)


def check_replaceable(path: Path, *, overwrite: bool) -> None:
    """Raises `UserError` if something is there that was not asked to be replaced, or is no data."""
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"{path} is a file; a folder is to be written there.")
    names = [Path(place, name) for place, _, files in os.walk(path) for name in files]
    if names and not overwrite:
        raise UserError(f"{path} exists and is not empty.", hint="Add --overwrite to replace the data in it.")
    known = (*SUFFIXES.values(), ".txt", ".elasticdl-index", ".tmp", ".gz")
    for name in names:
        if name.suffix not in known:
            raise UserError(f"{path} holds {name}, which is not data of ours.", hint="Choose another folder.")
