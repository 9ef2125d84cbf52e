"""The file in which arrays are kept: parameters, optimizer slots, whatever a checkpoint or an export needs of one
process.

    header    magic, format number
    arrays    their bytes, one behind the other
    index     JSON: the attributes, and of every array its group, name, dtype, shape, place and checksum
    trailer   where the index is, its checksum, magic

A format of our own because none at hand does it all: nothing in the file is executed (no pickle), it is
written in one go from arrays that stay where they are (the index comes last, as nothing has to be known in
advance), a single array can be read without the rest (servers restore only their share), every byte is
covered by a checksum or by a fixed value, and attributes go with it. A zip of .npy files has no place for
those, and reads a third as fast.

Files appear under their name only when complete: they are written beside it, flushed to the disk and renamed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checksums import combined
from elasticdl.ps.core.server_errors import WriteFailed
from elasticdl.ps.core.tensors import DTYPES, Array, find_not_finite, portable, raw_bytes

FORMAT = 1
_HEADER = struct.Struct("<8sII")
_TRAILER = struct.Struct("<QQI4x8s")
_MAGIC = b"EDL-SNAP"
_END = b"EDL-DONE"
# Read and written in pieces that stay in the cache between the copy and the checksum.
_PIECE = 1 << 20
# From so many bytes on, combining two checksums is faster than reading the bytes again.
_COMBINED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class NamedArrays:
    """Named arrays in named groups, and a few facts about them."""

    # Any JSON value.
    attributes: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Array]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ArrayEntry:
    """The place of an array in its file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    crc32: int


class ArrayFileWriter:
    """A file in the making, array by array: `add` them, then `finish`. Left without that, there is no file.

    Two processes must not write the same path at once.
    """

    def __init__(self, path: str | Path, *, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called before each array, and may raise to end it."""
        self._check = check
        self._target = Path(path)
        self._partial = self._target.with_name(f".{self._target.name}.partial")
        self._size = self._crc32 = 0
        self._arrays: list[list[Any]] = []
        with self._errors_as_user_errors():
            self._file = self._partial.open("wb", buffering=0)
        self._put(_HEADER.pack(_MAGIC, FORMAT, 0))

    def __enter__(self) -> ArrayFileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def add(self, group: str, name: str, given: Array) -> None:
        self._check()
        array = portable(given, what=name)
        offset, crc32 = self._size, 0
        for piece in _pieces(raw_bytes(array)):
            crc32 = zlib.crc32(piece, crc32)
            self._write(piece)
        self._crc32 = self._file_crc32(crc32, array)
        self._arrays.append([group, name, array.dtype.name, array.shape, offset, array.nbytes, crc32])

    def _file_crc32(self, crc32: int, array: Array) -> int:
        """The checksum of the file with an array added, from that of the array."""
        if array.nbytes >= _COMBINED:
            return combined(self._crc32, crc32, array.nbytes)
        return zlib.crc32(raw_bytes(array), self._crc32)

    def add_empty(self, group: str) -> None:
        """A group without arrays is remembered, too."""
        self._arrays.append([group, None, "", [], 0, 0, 0])

    def finish(self, attributes: Mapping[str, Any]) -> tuple[int, int]:
        """Puts the file under its name, in place of an older one. Returns its bytes and its CRC-32."""
        offset = self._size
        document = {"attributes": dict(attributes), "arrays": self._arrays}
        index = json.dumps(document, allow_nan=False).encode()
        self._put(index)
        self._put(_TRAILER.pack(offset, len(index), zlib.crc32(index), _END))
        with self._errors_as_user_errors():
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._partial, self._target)
            _sync_folder(self._target.parent)
        return self._size, self._crc32

    def _put(self, data: bytes) -> None:
        self._crc32 = zlib.crc32(data, self._crc32)
        self._write(data)

    def _write(self, data: bytes | memoryview) -> None:
        self._size += len(data)
        done = 0
        with self._errors_as_user_errors():
            while done < len(data):
                done += self._file.write(data[done:])

    @contextlib.contextmanager
    def _errors_as_user_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteFailed(
                f"{self._target} cannot be written: {error.strerror or error}.",
                hint="Make room there, or name another folder.",
            ) from error


def write_array_file(path: str | Path, snapshot: NamedArrays) -> tuple[int, int]:
    """Writes a file, or leaves the one that was there as it was. Returns its bytes and its CRC-32."""
    with ArrayFileWriter(path) as file:
        for group, members in snapshot.groups.items():
            if not members:
                file.add_empty(group)
            for name, array in members.items():
                file.add(group, name, array)
        return file.finish(snapshot.attributes)


def read_array_file(path: str | Path) -> NamedArrays:
    """The whole of a file. Raises `UserError` that says what is wrong with it, if anything is."""
    with ArrayFile(path) as file:
        return NamedArrays(
            attributes=file.attributes,
            groups={
                group: {name: file.read(group, name) for name in entries}
                for group, entries in file.entries.items()
            },
        )


class ArrayFile:
    """An open file: what is in it is known, arrays are read when asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("rb", buffering=0)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
        try:
            self.attributes, self.entries = self._read_index()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self, group: str, name: str, memory: NDArray[np.uint8] | None = None) -> Array:
        """An array, checked. It is the caller's own, or in memory of the caller's, of as many bytes."""
        entry = self.entries[group][name]
        if memory is None:
            array = np.empty(entry.shape, DTYPES[entry.dtype])
        else:
            array = memory.view(DTYPES[entry.dtype]).reshape(entry.shape)
        if self._fill(raw_bytes(array), entry.offset) != entry.crc32:
            raise self._damaged(f"the checksum of {name} ({group}) is wrong")
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def crc32(self) -> int:
        """Returns the CRC of the whole file, combined from the checksums in its index."""
        total = self._head_crc32
        for entry in sorted(
            (entry for members in self.entries.values() for entry in members.values()),
            key=lambda entry: entry.offset,
        ):
            total = combined(total, entry.crc32, entry.bytes)
        return combined(total, *self._end_crc32)

    def _read_index(self) -> tuple[dict[str, Any], dict[str, dict[str, ArrayEntry]]]:
        size = os.fstat(self._file.fileno()).st_size
        self._check_header(size)
        if size < _HEADER.size + _TRAILER.size:
            raise self._damaged("it is cut off")
        trailer = bytearray(_TRAILER.size)
        self._fill(memoryview(trailer), size - _TRAILER.size)
        offset, length, crc32, end = _TRAILER.unpack(trailer)
        if end != _END:
            raise self._damaged("it is cut off")
        if _TRAILER.pack(offset, length, crc32, end) != trailer or offset + length + _TRAILER.size != size:
            raise self._damaged("its end does not say where its index is")
        index = bytearray(length)
        if self._fill(memoryview(index), offset) != crc32:
            raise self._damaged("the checksum of its index is wrong")
        self._end_crc32 = zlib.crc32(trailer, crc32), length + len(trailer)
        try:
            document = json.loads(index.decode())
            attributes = dict(document["attributes"])
            entries = self._entries(document["arrays"], offset)
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(f"its index makes no sense: {error}") from error
        return attributes, entries

    def _check_header(self, size: int) -> None:
        header = bytearray(min(size, _HEADER.size))
        self._head_crc32 = self._fill(memoryview(header), 0)
        if not _MAGIC.startswith(header[: len(_MAGIC)]) or not header:
            raise UserError(
                f"{self.path} is not a file of parameters: it {'is empty' if not size else 'starts otherwise'}.",
                hint="Name a checkpoint or an export that ElasticDL has written.",
            )
        if len(header) < _HEADER.size:
            raise self._damaged("it is cut off")
        _, version, reserved = _HEADER.unpack(header)
        if version > FORMAT:
            raise UserError(
                f"{self.path} has format {version}; this version of ElasticDL reads formats up to {FORMAT}.",
                hint="Use the version of ElasticDL that wrote it, or a later one.",
            )
        if version < 1 or reserved:
            raise self._damaged("its first bytes make no sense")

    def _entries(self, arrays: list[Any], end: int) -> dict[str, dict[str, ArrayEntry]]:
        """Checked so far that reading can neither leave the file nor ask for more memory than the file has bytes."""
        groups: dict[str, dict[str, ArrayEntry]] = {}
        expected = _HEADER.size
        for group, name, dtype, shape, offset, length, crc32 in arrays:
            entry = ArrayEntry(
                dtype=dtype, shape=tuple(map(int, shape)), offset=offset, bytes=length, crc32=crc32
            )
            if name is None:
                groups.setdefault(group, {})
                continue
            if dtype not in DTYPES or any(size < 0 for size in entry.shape):
                raise ValueError(f"{name} is of dtype {dtype} and shape {entry.shape}")
            if math.prod(entry.shape) * DTYPES[dtype].itemsize != length or offset != expected:
                raise ValueError(f"{name} has {length} bytes at {offset}")
            if name in groups.setdefault(group, {}):
                raise ValueError(f"{name} comes twice")
            groups[group][name] = entry
            expected += length
        if expected != end:
            raise ValueError(f"arrays end at {expected} and not at {end}")
        return groups

    def _fill(self, buffer: memoryview, offset: int) -> int:
        """Reads a buffer full, and returns its checksum. Several threads may do so at once."""
        crc32 = 0
        try:
            for piece in _pieces(buffer):
                done = 0
                while done < len(piece):
                    count = os.preadv(self._file.fileno(), [piece[done:]], offset + done)
                    if not count:
                        raise self._damaged("it is cut off")
                    done += count
                offset += len(piece)
                crc32 = zlib.crc32(piece, crc32)
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        return crc32

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self.path} is damaged: {what}.", hint="Restore the file, or start from an older checkpoint."
        )


def _pieces(buffer: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(buffer), _PIECE):
        yield buffer[start : start + _PIECE]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_finite(kind: str, arrays: Mapping[str, Array]) -> None:
    """Raises `WriteFailed` if values are not finite: their file must not follow a good one."""
    bad = find_not_finite(arrays)
    if bad is not None:
        raise WriteFailed(
            f"The {kind} {bad} is not finite (NaN or infinity): the checkpoint is not written.",
            hint="A smaller learning rate, clipped gradients or other data may help.",
        )
