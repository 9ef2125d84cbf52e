"""Many files as one data set: sample indices run on from the last sample of one file to the first of the
next.

What formats have to give is a `DataFile`: how many samples are in it, and those of a range. They number
samples from zero in each file and know nothing of the others; here the numbers become those of the data
set, and damage in a file becomes `BadRecords` with the file's name in it.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from elasticdl.data.reader import BadRange, BadRecords, Metadata, Reader, Record, RecordKind
from elasticdl.errors import UserError

# Opening a file waits for the disk or the network more than for the processor.
_OPENING_THREADS = 8


class Damaged(Exception):
    """Samples [start, end) of one file cannot be read."""

    def __init__(self, *, start: int, end: int, where: str, reason: str) -> None:
        super().__init__(f"samples [{start}, {end}) at {where}: {reason}")
        self.start = start
        self.end = end
        self.where = where
        self.reason = reason


class DataFile(abc.ABC):
    """A file of a data set. May be read by several threads at once."""

    path: Path

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def read(self, start: int, end: int) -> Iterator[Record]:
        """The records of [start, end), numbered from zero in this file. Raises `Damaged`, wherever it may
        end.
        """


_File = TypeVar("_File", bound=DataFile)


class FilesReader(Reader):
    """The data set that some files of one format make up."""

    def __init__(
        self,
        *,
        origin: str,
        format: str,  # noqa: A002
        files: Sequence[DataFile],
        kind: RecordKind,
        metadata: Metadata | None = None,
    ) -> None:
        super().__init__(origin=origin, kind=kind, metadata=metadata or Metadata())
        self.format = format
        self.files = tuple(files)
        self._starts = np.concatenate(([0], np.cumsum([len(file) for file in files], dtype=np.int64)))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, end: int) -> Iterator[Record]:
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"[{start}, {end}) is not inside the {len(self)} samples of {self.origin}")
        return self._read(start, end)

    def _read(self, start: int, end: int) -> Iterator[Record]:
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < end:
            file, first, behind = self.files[number], int(self._starts[number]), int(self._starts[number + 1])
            stop = min(end, behind)
            try:
                if start < stop:
                    yield from file.read(start - first, stop - first)
            except Damaged as damaged:
                # Only the requested part: the rest of a damaged range is reported to the reader of that rest.
                bad = BadRange(
                    start=max(start, first + damaged.start),
                    end=min(stop, first + damaged.end),
                    where=damaged.where,
                    reason=damaged.reason,
                )
                raise BadRecords(bad) from damaged
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise UserError(f"Cannot read {file.path}: {reason}.") from error
            start = stop
            number += 1


def open_files(paths: Sequence[Path], opening: Callable[[Path], _File]) -> list[_File]:
    """Opens all files, several at a time, in the order of their paths; the first error is raised."""
    if len(paths) == 1:
        return [opening(paths[0])]
    with ThreadPoolExecutor(_OPENING_THREADS, thread_name_prefix="open-data") as threads:
        return list(threads.map(opening, paths))


@dataclass(frozen=True, kw_only=True)
class _Entry:
    key: Hashable
    value: Any
    size: int


class PieceCache:
    """The decoded pieces (chunks, row groups) that were last read in part, up to so many bytes.

    Shards are smaller than the pieces some writers make, and one after the other they need the same piece.
    The entries are one tuple that is replaced whole: threads that do so at the same time lose an entry at
    worst, and there is no lock that a forked process could inherit locked.
    """

    # Where pieces are small, decoding one again costs next to nothing.
    _MAX_ENTRIES = 16

    def __init__(self, limit: int = 128 << 20) -> None:
        self._limit = limit
        self._entries: tuple[_Entry, ...] = ()

    def get(self, key: Hashable) -> Any:
        return next((entry.value for entry in self._entries if entry.key == key), None)

    def put(self, key: Hashable, value: Any, size: int) -> None:
        room = self._limit - size
        if room < 0:
            return
        kept: list[_Entry] = []
        for entry in self._entries:
            room -= entry.size
            if room < 0 or len(kept) == self._MAX_ENTRIES:
                break
            if entry.key != key:
                kept.append(entry)
        self._entries = (_Entry(key=key, value=value, size=size), *kept)
