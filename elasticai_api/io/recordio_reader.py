"""RecordIO files, read by the index of a record: what a program does with the samples of its shard.

A file is a sequence of chunks; a chunk is a header of five little-endian uint32 (a magic number, the CRC-32 of the data
as stored, the compressor: 0 none, 1 Snappy's framing format, 2 gzip; the size of the stored data, the number of
records) and the data: decompressed, the length and the bytes of each record. The headers alone are read at first, so
that opening large files is fast; a chunk is read and checked when one of its records is asked for.
"""

from __future__ import annotations

import bisect
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elasticai_api.errors import RecordIOError

_MAGIC = 0x01020304
_HEADER = struct.Struct("<5I")
_LENGTH = struct.Struct("<I")
_NONE, _SNAPPY, _GZIP = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    path: str
    offset: int
    size: int
    crc: int
    compressor: int
    first: int
    records: int


class RecordIOReader:
    """The records of some files, numbered from 0 on through all of them in the order of the files.

    Raises `RecordIOError` for damaged files, when it is made if their headers are damaged, else when the records are
    read. May be used by several threads; in another process it reads by itself.
    """

    def __init__(self, recordio_files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> None:
        if isinstance(recordio_files, (str, os.PathLike)):
            recordio_files = [recordio_files]
        self._chunks: list[_Chunk] = []
        self._count = 0
        for path in recordio_files:
            for chunk in _scan(os.fspath(path), self._count):
                self._chunks.append(chunk)
                self._count += chunk.records
        self._firsts = [chunk.first for chunk in self._chunks]
        self._lock = threading.Lock()
        # Shards are smaller than chunks, and come one after the other.
        self._last: tuple[int, list[bytes]] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        """Returns a record, so that a reader is a map-style data set."""
        if not 0 <= index < self._count:
            raise IndexError(f"There is no record {index}: there are {self._count}.")
        return next(self.read_records(index, index + 1))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_lock": None, "_last": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def read_records(self, start: int, end: int) -> Iterator[bytes]:
        """The records from `start` up to, not including, `end`."""
        if not 0 <= start <= end <= self._count:
            raise IndexError(f"There are no records [{start}, {end}): there are {self._count}.")
        return self._read(start, end)

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        # Several chunks without records may begin at the same one.
        number = bisect.bisect_right(self._firsts, start) - 1
        while start < end:
            chunk = self._chunks[number]
            until = min(end, chunk.first + chunk.records)
            if start < until:
                yield from self._records(number)[start - chunk.first : until - chunk.first]
                start = until
            number += 1

    def _records(self, number: int) -> list[bytes]:
        with self._lock:
            if self._last is None or self._last[0] != number:
                self._last = (number, _decode(self._chunks[number]))
            return self._last[1]


def _scan(path: str, first: int) -> Iterator[_Chunk]:
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        offset = 0
        while offset < end:
            file.seek(offset)
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise RecordIOError(f"{path}: the file ends in the middle of a header, at byte {offset}.")
            magic, crc, compressor, size, records = _HEADER.unpack(header)
            if magic != _MAGIC:
                raise RecordIOError(f"{path}: no chunk of RecordIO begins at byte {offset}.")
            if offset + _HEADER.size + size > end:
                raise RecordIOError(f"{path}: the file ends in the middle of the chunk at byte {offset}.")
            yield _Chunk(
                path=path,
                offset=offset,
                size=size,
                crc=crc,
                compressor=compressor,
                first=first,
                records=records,
            )
            offset += _HEADER.size + size
            first += records


def _decode(chunk: _Chunk) -> list[bytes]:
    where = f"{chunk.path}: the chunk at byte {chunk.offset}"
    with open(chunk.path, "rb") as file:
        file.seek(chunk.offset + _HEADER.size)
        stored = file.read(chunk.size)
    if zlib.crc32(stored) != chunk.crc:
        raise RecordIOError(f"{where} is damaged: its checksum is wrong.")
    data = _decompress(chunk.compressor, stored, where)
    records = []
    offset = 0
    for _ in range(chunk.records):
        begin = offset + _LENGTH.size
        if begin > len(data):
            raise RecordIOError(f"{where} has fewer records than the {chunk.records} that it says.")
        offset = begin + _LENGTH.unpack_from(data, begin - _LENGTH.size)[0]
        if offset > len(data):
            raise RecordIOError(f"{where} ends in the middle of a record.")
        records.append(data[begin:offset])
    if offset != len(data):
        raise RecordIOError(f"{where} has more in it than the {chunk.records} records that it says.")
    return records


def _decompress(compressor: int, stored: bytes, where: str) -> bytes:
    if compressor == _NONE:
        return stored
    if compressor not in (_SNAPPY, _GZIP):
        raise RecordIOError(f"{where} is compressed in an unknown way ({compressor}).")
    decompress = _gunzip if compressor == _GZIP else _snappy(where)
    try:
        return decompress(stored)
    # Each library raises errors of its own for damaged data.
    except Exception as error:
        raise RecordIOError(f"{where} cannot be decompressed: {error}") from error


def _gunzip(stored: bytes) -> bytes:
    import gzip

    return gzip.decompress(stored)


def _snappy(where: str) -> Callable[[bytes], bytes]:
    """Returns the decompressor of either package for Snappy that is installed; other files need neither."""
    try:
        import cramjam
    except ImportError:
        pass
    else:
        return lambda stored: bytes(cramjam.snappy.decompress(stored))
    try:
        import snappy  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise RecordIOError(
            f"{where} is compressed by Snappy, for which Python needs a package: pip install cramjam"
        ) from None
    return lambda stored: bytes(snappy.StreamDecompressor().decompress(stored))
