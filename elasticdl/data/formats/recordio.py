"""RecordIO: a file of chunks, each with a checksum, and with some records in it that are compressed together.

A chunk is a header of five little-endian uint32 (magic 0x01020304; CRC-32 of the data as stored;
compressor: 0 none, 1 Snappy framing format, 2 gzip; size of the stored data; number of records) and the
data: decompressed, each record's length as a uint32 and its bytes. It is the format of the `pyrecordio`
package, whose files are read here and whose users can read ours.

The index is made of the headers alone, nothing is decompressed for it. What a chunk's checksum does not
cover, its header, may be damaged as well: the number of records and the compressor are found out when the
chunk is decoded; where the magic or the size is wrong, the index goes on at the next chunk whose checksum
is right. The samples in between are bad: as many as the damaged header says, where that can be believed,
else one stands for an unknown number.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

from elasticdl.data.files.atomic_file import AtomicFile
from elasticdl.data.files.data_file import Source, read_at
from elasticdl.data.files.multi_file import Damaged, DataFile, PieceCache
from elasticdl.data.files.record_index import Damage, FileIndex, IndexBuilder, index_of
from elasticdl.errors import UserError

Compressor = Literal["none", "snappy", "gzip"]

MAGIC = b"\x04\x03\x02\x01"
_HEADER = struct.Struct("<4s4I")
_LENGTH = struct.Struct("<I")
_NUMBERS: dict[Compressor, int] = {"none": 0, "snappy": 1, "gzip": 2}
_NAMES: dict[int, Compressor] = {number: name for name, number in _NUMBERS.items()}
# The most that a stored byte can become. A record takes four bytes at least, so this bounds the number of
# records.
_MAX_RATIO = {0: 1, 1: 32, 2: 1100}
_SEARCH_BYTES = 1 << 20
# Small enough that a shard of some hundred records reads little more than its own, large enough to compress.
_CHUNK_BYTES = 128 << 10
_CHUNK_RECORDS = 1024


class Header(NamedTuple):
    crc: int
    compressor: int
    size: int
    records: int

    def believable(self) -> bool:
        return self.records * 4 <= self.size * _MAX_RATIO.get(self.compressor, 1100)


class BadChunk(Exception):
    """The content of a chunk contradicts its header."""


class RecordIOFile(DataFile):
    """A RecordIO file; its records are bytes."""

    def __init__(self, source: Source, cache: PieceCache) -> None:
        self.path = source.path
        self._source = source
        self._cache = cache
        self._index = index_of(source, "recordio 1", lambda file, size: scan(file, size, source.path))

    def __len__(self) -> int:
        return self._index.count

    def read(self, start: int, end: int) -> Iterator[bytes]:
        index = self._index
        mark = index.mark_before(start)
        sample, offset = int(index.samples[mark]), int(index.offsets[mark])
        with self._source.open() as file:
            while sample < end:
                damage = index.damages.get(offset)
                if damage is not None:
                    if damage.end > start:
                        raise self._damaged(damage.start, damage.end, offset, damage.reason)
                    sample, offset = damage.end, damage.stop
                    continue
                header = _header(read_at(file, _HEADER.size, offset))
                if header is None:
                    raise self._damaged(sample, len(self), offset, "no chunk begins here any more")
                behind = sample + header.records
                if behind > start:
                    partly = sample < start or end < behind
                    data, begins = self._chunk(file, header, sample, offset, partly)
                    for begin in begins[max(0, start - sample) : end - sample]:
                        yield data[begin : begin + _LENGTH.unpack_from(data, begin - 4)[0]]
                sample, offset = behind, offset + _HEADER.size + header.size

    def _chunk(
        self, file: int, header: Header, sample: int, offset: int, partly: bool
    ) -> tuple[bytes, list[int]]:
        key = (self.path, offset)
        chunk: tuple[bytes, list[int]] | None = self._cache.get(key)
        if chunk is None:
            try:
                chunk = decode_chunk(header, read_at(file, header.size, offset + _HEADER.size))
            except BadChunk as error:
                raise self._damaged(sample, sample + header.records, offset, str(error)) from error
            if partly:
                self._cache.put(key, chunk, len(chunk[0]) + 36 * header.records)
        return chunk

    def _damaged(self, start: int, end: int, offset: int, reason: str) -> Damaged:
        return Damaged(start=start, end=end, where=self._source.where(offset), reason=reason)


def decode_chunk(header: Header, stored: bytes) -> tuple[bytes, list[int]]:
    """The decompressed data of a chunk, and where in it each record begins. Raises `BadChunk`."""
    if len(stored) != header.size:
        raise BadChunk(f"{header.size - len(stored)} bytes of the chunk are missing")
    if zlib.crc32(stored) != header.crc:
        raise BadChunk("the checksum of the chunk is wrong")
    data = _decompress(header.compressor, stored)
    begins = []
    position, size = 4, len(data)
    while position <= size:
        begins.append(position)
        position += 4 + _LENGTH.unpack_from(data, position - 4)[0]
    if position != size + 4 or len(begins) != header.records:
        raise BadChunk(f"the chunk does not hold the {header.records} records its header tells of")
    return data, begins


def _decompress(compressor: int, stored: bytes) -> bytes:
    import cramjam

    name = _NAMES.get(compressor)
    try:
        if name == "none":
            return stored
        if name == "snappy":
            return bytes(cramjam.snappy.decompress(stored))
        if name == "gzip":
            return gzip.decompress(stored)
    except (cramjam.DecompressionError, OSError, EOFError, zlib.error) as error:
        raise BadChunk(f"the chunk cannot be decompressed ({name}): {error}") from error
    raise BadChunk(f"unknown compressor {compressor}")


def _header(data: bytes) -> Header | None:
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        return None
    return Header._make(_HEADER.unpack(data)[1:])


_UNKNOWN = " (the number of lost samples is unknown; counted as one)"
_NO_CHUNK = f"no chunk begins here{_UNKNOWN}"


# -- the index ---------------------------------------------------------------------------------------------


def scan(file: int, size: int, path: Path) -> FileIndex:
    """Walks from header to header, and past what is damaged."""
    builder = IndexBuilder()
    sample = offset = 0
    before: tuple[int, int, Header] | None = None
    while offset < size:
        header = _header(read_at(file, _HEADER.size, offset))
        behind = offset + _HEADER.size + header.size if header else 0
        if header is not None and behind <= size and header.believable():
            builder.mark(sample, offset)
            before = (sample, offset, header)
            sample, offset = sample + header.records, behind
            continue
        damage = _damage(file, size, sample, offset, before)
        if damage.offset == 0 and damage.stop == size and damage.reason == _NO_CHUNK:
            raise UserError(
                f"{path} is not a RecordIO file: no chunk of one is in it.",
                hint="Name the format with --data_reader_params=format=...",
            )
        builder.drop_from(damage.offset)
        builder.damage(damage)
        before = None
        sample, offset = damage.end, damage.stop
    return builder.finish(sample)


def _damage(file: int, size: int, sample: int, offset: int, before: tuple[int, int, Header] | None) -> Damage:
    """Describes the damage at an offset where no valid chunk begins."""
    stored = read_at(file, _HEADER.size, offset)
    header = _header(stored)
    if header is None and before is not None and not _right(file, before[1], before[2]):
        # The walk came here by the size in the header before, and that chunk is wrong as well: so was its
        # size.
        first, begin, previous = before
        reason = "the chunk is damaged, and the next does not begin where its header says"
        return Damage(
            start=first,
            end=first + max(1, previous.records),
            offset=begin,
            stop=_next_chunk(file, begin + 4, size),
            reason=reason,
        )
    if len(stored) < _HEADER.size:
        reason = f"the file ends inside the header of a chunk{_UNKNOWN}"
        return Damage(start=sample, end=sample + 1, offset=offset, stop=size, reason=reason)
    stop = _next_chunk(file, offset + 4, size)
    if header is None:
        header = Header._make(_HEADER.unpack(stored)[1:])
        if header.records and header.size and header.believable() and _right(file, offset, header):
            reason = "the chunk's header does not begin with the magic number"
            return Damage(start=sample, end=sample + header.records, offset=offset, stop=stop, reason=reason)
        return Damage(start=sample, end=sample + 1, offset=offset, stop=stop, reason=_NO_CHUNK)
    if not header.believable():
        reason = f"the chunk's header tells of {header.records} records in {header.size} bytes{_UNKNOWN}"
        return Damage(start=sample, end=sample + 1, offset=offset, stop=stop, reason=reason)
    missing = offset + _HEADER.size + header.size - size
    reason = (
        f"the file ends in the middle of the chunk, {missing} bytes are missing"
        if stop == size
        else "the size in the chunk's header is wrong"
    )
    end = sample + max(1, header.records)
    return Damage(start=sample, end=end, offset=offset, stop=stop, reason=reason)


def _right(file: int, offset: int, header: Header) -> bool:
    data = read_at(file, header.size, offset + _HEADER.size)
    return len(data) == header.size and zlib.crc32(data) == header.crc


def _next_chunk(file: int, offset: int, size: int) -> int:
    """Returns the offset of the next chunk with a valid checksum, or the end of the file."""
    while offset < size:
        window = read_at(file, _SEARCH_BYTES + len(MAGIC) - 1, offset)
        found = window.find(MAGIC)
        while found >= 0:
            candidate = _header(read_at(file, _HEADER.size, offset + found))
            # An empty chunk proves nothing: the checksum of no bytes is 0, and zeros are common.
            if candidate is not None and candidate.size and candidate.compressor in _NAMES:
                behind = offset + found + _HEADER.size + candidate.size
                if behind <= size and _right(file, offset + found, candidate):
                    return offset + found
            found = window.find(MAGIC, found + 1)
        offset += _SEARCH_BYTES
    return size


# -- writing -----------------------------------------------------------------------------------------------


class RecordIOWriter:
    """Writes a RecordIO file, which is there when the writer is closed, and never in part.

    A context manager: left by an exception, nothing is written.
    """

    def __init__(
        self,
        path: Path | str,
        compressor: Compressor = "snappy",
        *,
        max_chunk_bytes: int = _CHUNK_BYTES,
        max_chunk_records: int = _CHUNK_RECORDS,
    ) -> None:
        if compressor not in _NUMBERS:
            raise UserError(
                f"RecordIO has no compressor {compressor!r}.", hint=f"It has {', '.join(_NUMBERS)}."
            )
        self._compressor = compressor
        self._max_bytes = max_chunk_bytes
        self._max_records = max_chunk_records
        self._parts: list[bytes] = []
        self._bytes = 0
        self._file = AtomicFile(path)

    def write(self, record: bytes) -> None:
        self._parts += (_LENGTH.pack(len(record)), record)
        self._bytes += 4 + len(record)
        if self._bytes >= self._max_bytes or len(self._parts) >= 2 * self._max_records:
            self._write_chunk()

    def close(self) -> None:
        self._write_chunk()
        self._file.close()

    def discard(self) -> None:
        self._file.discard()

    def _write_chunk(self) -> None:
        if not self._parts:
            return
        data = b"".join(self._parts)
        if self._compressor == "snappy":
            import cramjam

            data = bytes(cramjam.snappy.compress(data))
        elif self._compressor == "gzip":
            # Without the time in the header, so that the same records make the same file.
            data = gzip.compress(data, mtime=0)
        header = _HEADER.pack(
            MAGIC, zlib.crc32(data), _NUMBERS[self._compressor], len(data), len(self._parts) // 2
        )
        self._file.write(header)
        self._file.write(data)
        self._parts = []
        self._bytes = 0

    def __enter__(self) -> RecordIOWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
