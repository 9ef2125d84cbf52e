"""TFRecord: records one after the other, each with its length and two checksums.

A record is its length as a little-endian uint64, the masked CRC-32C of these eight bytes, the record, and
the masked CRC-32C of the record. It is TensorFlow's format, also that of TensorBoard's event files.

The index is built from the lengths; the records themselves are checked when they are read. A damaged length
hides where the next record begins: the index goes on at the next place where both checksums are right. What
lies before it counts as one bad sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elasticdl.data.files.data_file import Source, read_at
from elasticdl.data.files.multi_file import Damaged, DataFile
from elasticdl.data.files.record_index import Damage, FileIndex, IndexBuilder, index_of
from elasticdl.data.formats.tfrecord_frames import (
    CRC,
    FRAME,
    HEADER,
    WINDOW_BYTES,
    Window,
    masked_crc,
    record_length,
)
from elasticdl.errors import UserError


class TFRecordFile(DataFile):
    """A TFRecord file; its records are bytes."""

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
            window = Window(file)
            while sample < end:
                damage = index.damages.get(offset)
                if damage is not None:
                    if damage.end > start:
                        raise self._damaged(damage.start, damage.end, offset, damage.reason)
                    sample, offset = damage.end, damage.stop
                    continue
                length = record_length(window.get(offset, HEADER.size))
                if length is None:
                    raise self._damaged(sample, len(self), offset, "no record begins here any more")
                if sample >= start:
                    framed = window.get(offset, length + FRAME)
                    record = framed[HEADER.size : -CRC.size]
                    if masked_crc(record) != CRC.unpack_from(framed, len(framed) - CRC.size)[0]:
                        raise self._damaged(sample, sample + 1, offset, "the checksum of the record is wrong")
                    yield record
                sample, offset = sample + 1, offset + length + FRAME

    def _damaged(self, start: int, end: int, offset: int, reason: str) -> Damaged:
        return Damaged(start=start, end=end, where=self._source.where(offset), reason=reason)


# -- the index ---------------------------------------------------------------------------------------------


def scan(file: int, size: int, path: Path) -> FileIndex:
    """Walks from length to length, and past what is damaged."""
    builder = IndexBuilder()
    window = Window(file)
    sample = offset = 0
    while offset < size:
        length = record_length(window.get(offset, HEADER.size))
        if length is not None and offset + length + FRAME <= size:
            builder.mark(sample, offset)
            offset += length + FRAME
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
        missing = offset + length + FRAME - size
        stop, reason = size, f"the file ends in the middle of the record, {missing} bytes are missing"
    elif size - offset < HEADER.size:
        stop, reason = size, "the file ends inside the header of a record"
    else:
        stop = _next_record(file, offset + 1, size)
        reason = "the length of the record is damaged (others may be lost with it; counted as one)"
    return Damage(start=sample, end=sample + 1, offset=offset, stop=stop, reason=reason)


def _next_record(file: int, offset: int, size: int) -> int:
    """Returns the offset of the next whole record with valid checksums, or the end of the file."""
    while offset < size:
        window = read_at(file, WINDOW_BYTES + HEADER.size - 1, offset)
        if len(window) < HEADER.size:
            break
        # Only records below 4 GiB are looked for: the upper half of their length is zero.
        zero = np.frombuffer(window, dtype=np.uint8) == 0
        starts = len(window) - HEADER.size + 1
        likely = zero[4 : 4 + starts] & zero[5 : 5 + starts] & zero[6 : 6 + starts] & zero[7 : 7 + starts]
        for begin in np.flatnonzero(likely).tolist():
            length = record_length(window[begin : begin + HEADER.size])
            at: int = offset + begin
            if length is None or at + length + FRAME > size:
                continue
            record = read_at(file, length, at + HEADER.size)
            if read_at(file, CRC.size, at + HEADER.size + length) == CRC.pack(masked_crc(record)):
                return at
        offset += WINDOW_BYTES
    return size
