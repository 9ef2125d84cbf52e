"""The frames around the records of a TFRecord file (`tfrecord.py` says what they are), and a writer of them.

Needs nothing that takes long to import: every master has such a file for its plots, and is waited for.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType

import google_crc32c

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.data.files.data_file import read_at
from elasticdl.errors import UserError

HEADER = struct.Struct("<QI")
CRC = struct.Struct("<I")
# A header and a footer around each record.
FRAME = HEADER.size + CRC.size
WINDOW_BYTES = 1 << 20
# After a jump over a large record, only so much is read ahead.
_PEEK_BYTES = 4 << 10


def masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record_length(header: bytes) -> int | None:
    """The length in the header of a record, or None if its checksum is wrong."""
    if len(header) < HEADER.size:
        return None
    length, crc = HEADER.unpack_from(header)
    return length if masked_crc(header[:8]) == crc else None


def frame(record: bytes) -> bytes:
    """The record as it stands in a file."""
    length = len(record).to_bytes(8, "little")
    return b"".join((length, CRC.pack(masked_crc(length)), record, CRC.pack(masked_crc(record))))


class Window:
    """A file's bytes by offset, read ahead as long as they are asked for one after the other."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._data = b""
        self._offset = 0

    def get(self, offset: int, size: int) -> bytes:
        begin = offset - self._offset
        if begin < 0 or begin + size > len(self._data):
            ahead = WINDOW_BYTES if 0 <= begin <= len(self._data) else _PEEK_BYTES
            self._data = read_at(self._file, max(size, ahead), offset)
            self._offset, begin = offset, 0
        return self._data[begin : begin + size]


class TFRecordWriter:
    """Appends records to a TFRecord file, which others may read meanwhile: each record is there after
    `flush`.

    If a process was killed while it wrote to the file, the torn record at its end is cut off first, so that
    readers find what comes after it. A full disk raises `UserError`; the file then ends with a
    whole record.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with disk_errors(self.path):
            self._file = open(self.path, "ab+", buffering=0)  # noqa: SIM115
            self._end = _whole_records(self._file.fileno())
            self._file.truncate(self._end)
        self._pending = bytearray()

    def write(self, record: bytes) -> None:
        self._pending += frame(record)
        if len(self._pending) >= WINDOW_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands what was written to the system, so that later readers see it."""
        if not self._pending:
            return
        pending, self._pending = memoryview(self._pending), bytearray()
        try:
            with disk_errors(self.path):
                while pending:
                    pending = pending[self._file.write(pending) :]
        except UserError:
            self._file.truncate(self._end)
            raise
        self._end = self._file.tell()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _whole_records(file: int) -> int:
    window = Window(file)
    offset = 0
    while (length := record_length(window.get(offset, HEADER.size))) is not None:
        if len(read_at(file, 1, offset + length + FRAME - 1)) == 0:
            break
        offset += length + FRAME
    return offset
