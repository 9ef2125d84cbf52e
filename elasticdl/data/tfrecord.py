"""TFRecord: records one after the other, each with its length and two checksums.

A record is its length as a little-endian uint64, the masked CRC-32C of these eight bytes, the record, and
the masked CRC-32C of the record. It is TensorFlow's format, also that of TensorBoard's event files.

The index is built from the lengths; the records themselves are checked when they are read. A damaged length
hides where the next record begins: the index goes on at the next place where both checksums are right. What
lies before it counts as one bad sample.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import google_crc32c
import numpy as np

from elasticdl.data.files import Damaged, DataFile
from elasticdl.data.index import Damage, FileIndex, IndexBuilder, index_of
from elasticdl.data.source import Source, read_at
from elasticdl.data.writing import disk_errors
from elasticdl.jobs.errors import UserError

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
# A header and a footer around each record.
_FRAME = _HEADER.size + _CRC.size
_WINDOW_BYTES = 1 << 20
# After a jump over a large record, only so much is read ahead.
_PEEK_BYTES = 4 << 10


def masked_crc(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record_length(header: bytes) -> int | None:
    """The length in the header of a record, or None if its checksum is wrong."""
    if len(header) < _HEADER.size:
        return None
    length, crc = _HEADER.unpack_from(header)
    return length if masked_crc(header[:8]) == crc else None


def frame(record: bytes) -> bytes:
    """The record as it stands in a file."""
    length = len(record).to_bytes(8, "little")
    return b"".join((length, _CRC.pack(masked_crc(length)), record, _CRC.pack(masked_crc(record))))


class _Window:
    """A file's bytes by offset, read ahead as long as they are asked for one after the other."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._data = b""
        self._offset = 0

    def get(self, offset: int, size: int) -> bytes:
        begin = offset - self._offset
        if begin < 0 or begin + size > len(self._data):
            ahead = _WINDOW_BYTES if 0 <= begin <= len(self._data) else _PEEK_BYTES
            self._data = read_at(self._file, max(size, ahead), offset)
            self._offset, begin = offset, 0
        return self._data[begin : begin + size]


class TFRecordFile(DataFile):
    """One TFRecord file; its records are bytes."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self._source = source
        self._index = index_of(source, "tfrecord 1", lambda file, size: scan(file, size, source.path))

    def __len__(self) -> int:
        return self._index.count

    def read(self, start: int, end: int) -> Iterator[bytes]:
        index = self._index
        mark = index.mark_before(start)
        sample, offset = int(index.samples[mark]), int(index.offsets[mark])
        with self._source.open() as file:
            window = _Window(file)
            while sample < end:
                damage = index.damages.get(offset)
                if damage is not None:
                    if damage.end > start:
                        raise self._damaged(damage.start, damage.end, offset, damage.reason)
                    sample, offset = damage.end, damage.stop
                    continue
                length = record_length(window.get(offset, _HEADER.size))
                if length is None:
                    raise self._damaged(sample, len(self), offset, "no record begins here any more")
                if sample >= start:
                    framed = window.get(offset, length + _FRAME)
                    record = framed[_HEADER.size : -_CRC.size]
                    if masked_crc(record) != _CRC.unpack_from(framed, len(framed) - _CRC.size)[0]:
                        raise self._damaged(sample, sample + 1, offset, "the checksum of the record is wrong")
                    yield record
                sample, offset = sample + 1, offset + length + _FRAME

    def _damaged(self, start: int, end: int, offset: int, reason: str) -> Damaged:
        return Damaged(start=start, end=end, where=self._source.where(offset), reason=reason)


# -- the index ---------------------------------------------------------------------------------------------


def scan(file: int, size: int, path: Path) -> FileIndex:
    """Walks from length to length, and past what is damaged."""
    builder = IndexBuilder()
    window = _Window(file)
    sample = offset = 0
    while offset < size:
        length = record_length(window.get(offset, _HEADER.size))
        if length is not None and offset + length + _FRAME <= size:
            builder.mark(sample, offset)
            offset += length + _FRAME
        else:
            damage = _damage(file, size, sample, offset, length)
            if offset == 0 and length is None and damage.stop == size:
                raise UserError(
                    f"{path} is not a TFRecord file: no record of one is in it.",
                    hint="Name the format with --data_reader_params=format=...",
                )
            builder.damage(damage)
            offset = damage.stop
        sample += 1
    return builder.finish(sample)


def _damage(file: int, size: int, sample: int, offset: int, length: int | None) -> Damage:
    if length is not None:
        missing = offset + length + _FRAME - size
        stop, reason = size, f"the file ends in the middle of the record, {missing} bytes are missing"
    elif size - offset < _HEADER.size:
        stop, reason = size, "the file ends inside the header of a record"
    else:
        stop = _next_record(file, offset + 1, size)
        reason = "the length of the record is damaged (others may be lost with it; counted as one)"
    return Damage(start=sample, end=sample + 1, offset=offset, stop=stop, reason=reason)


def _next_record(file: int, offset: int, size: int) -> int:
    """Where the next whole record with right checksums begins, or the end of the file."""
    while offset < size:
        window = read_at(file, _WINDOW_BYTES + _HEADER.size - 1, offset)
        if len(window) < _HEADER.size:
            break
        # Only records below 4 GiB are looked for: the upper half of their length is zero.
        zero = np.frombuffer(window, dtype=np.uint8) == 0
        starts = len(window) - _HEADER.size + 1
        likely = zero[4 : 4 + starts] & zero[5 : 5 + starts] & zero[6 : 6 + starts] & zero[7 : 7 + starts]
        for begin in np.flatnonzero(likely).tolist():
            length = record_length(window[begin : begin + _HEADER.size])
            at: int = offset + begin
            if length is None or at + length + _FRAME > size:
                continue
            record = read_at(file, length, at + _HEADER.size)
            if read_at(file, _CRC.size, at + _HEADER.size + length) == _CRC.pack(masked_crc(record)):
                return at
        offset += _WINDOW_BYTES
    return size


# -- writing -----------------------------------------------------------------------------------------------


class TFRecordWriter:
    """Appends records to a TFRecord file, which others may read meanwhile: each record is there after
    `flush`.

    If a process was killed while it wrote to the file, the torn record at its end is cut off first, so that
    readers find what comes after it. A disk that is full is told as `UserError`; the file then ends with a
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
        if len(self._pending) >= _WINDOW_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands what was written to the system. Whoever opens the file now finds it."""
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
    window = _Window(file)
    offset = 0
    while (length := record_length(window.get(offset, _HEADER.size))) is not None:
        if len(read_at(file, 1, offset + length + _FRAME - 1)) == 0:
            break
        offset += length + _FRAME
    return offset
