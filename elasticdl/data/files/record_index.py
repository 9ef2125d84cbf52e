"""Getting to a sample by its index, in formats that can only be read from one record to the next.

An index holds marks: at sample S a piece of the file begins at byte O. Marks are sparse (one every few
hundred records, or every megabyte), so an index of 10⁸ records takes a few megabytes; a reader goes to the
mark before the wanted sample and walks from there. It also holds what was found damaged on the way in such
a manner that the walk could not go on by itself.

It is built once for a file, and kept beside it under a hidden name (`.NAME.elasticdl-index`), or in the
cache folder where the data may not be written, or just in memory where that may not be either. It counts
only if size and time of the data file, and the settings it was built with, are the present ones, and its
own checksum is right. It is written under another name and renamed, so any number of processes may build it
at the same time: all of them build the same.
"""

from __future__ import annotations

import json
import logging
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.files.atomic_file import AtomicFile, disk_errors
from elasticdl.data.files.cache_paths import Stamp, cache_folder, cache_key
from elasticdl.data.files.data_file import Source
from elasticdl.errors import UserError

_log = logging.getLogger(__name__)

_MAGIC = b"elasticdl index 1\n"
# Between two marks lie at most so many samples or bytes (one record more, if it is large). Walking past 256
# records takes well below a millisecond; 16 bytes a mark make 6 MB for 10⁸ records.
MARK_SAMPLES = 256
MARK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Bytes [offset, stop) that hold the samples [start, end), of which none can be read."""

    start: int
    end: int
    offset: int
    stop: int
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class FileIndex:
    count: int
    samples: NDArray[np.int64]
    offsets: NDArray[np.int64]
    damages: Mapping[int, Damage] = field(default_factory=dict)  # by offset

    def mark_before(self, sample: int) -> int:
        """The number of the last mark at or before a sample."""
        return max(0, int(np.searchsorted(self.samples, sample, side="right")) - 1)


class IndexBuilder:
    """Takes the marks and damages in the order of the file."""

    def __init__(self) -> None:
        self._samples = array("q")
        self._offsets = array("q")
        self._damages: dict[int, Damage] = {}
        self._next_sample = 0
        self._next_offset = 0

    def mark(self, sample: int, offset: int) -> None:
        """A record, or a piece with several, begins here. Kept if it is far enough from the mark before."""
        if sample >= self._next_sample or offset >= self._next_offset:
            self._samples.append(sample)
            self._offsets.append(offset)
            self._next_sample = sample + MARK_SAMPLES
            self._next_offset = offset + MARK_BYTES

    def damage(self, damage: Damage) -> None:
        self.mark(damage.start, damage.offset)
        self._damages[damage.offset] = damage

    def drop_from(self, offset: int) -> None:
        """Takes marks back: what was taken for the beginning of a piece turned out to be damaged."""
        while self._offsets and self._offsets[-1] >= offset:
            self._offsets.pop()
            self._samples.pop()
        self._next_sample = self._next_offset = 0

    def finish(self, count: int) -> FileIndex:
        return FileIndex(
            count=count,
            samples=np.array(self._samples, dtype=np.int64),
            offsets=np.array(self._offsets, dtype=np.int64),
            damages=dict(self._damages),
        )


def index_of(source: Source, layout: str, build: Callable[[int, int], FileIndex]) -> FileIndex:
    """The index of a file, from where it is kept or built now.

    `layout` says how it was built: format, version, and every setting that moves the borders of records.
    `build` gets a file descriptor and the size of the plain bytes.
    """
    beside, cached = beside_data(source.path), in_cache(source.path)
    for place in (beside, cached):
        found = _load(place, source, layout)
        if found is not None:
            return found
    with source.open() as descriptor:
        built = build(descriptor, source.size)
    with disk_errors(source.path, doing="read"):
        if Stamp.of(source.path) != source.stamp:
            raise UserError(
                f"{source.path} is being written at this moment.",
                hint="Start again when the file is complete.",
            )
    content = _encode(built, source, layout)
    if not _store(beside, content) and not _store(cached, content):
        _log.warning(
            "the index of %s can be kept neither beside it nor in %s; every process will build it",
            source.path,
            cached.parent,
        )
    return built


def beside_data(path: Path) -> Path:
    return path.with_name(f".{path.name}.elasticdl-index")


def in_cache(path: Path) -> Path:
    return cache_folder() / "index" / f"{cache_key(path)}.elasticdl-index"


def _store(place: Path, content: bytes) -> bool:
    try:
        if place.parent.name == "index":
            place.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(place) as file:
            file.write(content)
    except (OSError, UserError):
        return False
    return True


def _encode(index: FileIndex, source: Source, layout: str) -> bytes:
    header = {
        "layout": layout,
        "size": source.stamp.size,
        "mtime_ns": source.stamp.mtime_ns,
        "count": index.count,
        "marks": len(index.samples),
        "damages": [asdict(damage) for damage in index.damages.values()],
    }
    body = b"".join(
        (
            _MAGIC,
            json.dumps(header).encode() + b"\n",
            index.samples.astype("<i8").tobytes(),
            index.offsets.astype("<i8").tobytes(),
        )
    )
    return body + zlib.crc32(body).to_bytes(4, "little")


def _load(place: Path, source: Source, layout: str) -> FileIndex | None:
    """Loads an index. Returns None if it is missing, damaged or does not fit; it is rebuilt then."""
    try:
        content = place.read_bytes()
    except OSError:
        return None
    body = content[:-4]
    if not body.startswith(_MAGIC) or zlib.crc32(body) != int.from_bytes(content[-4:], "little"):
        return None
    header_end = body.find(b"\n", len(_MAGIC))
    header: dict[str, Any] = json.loads(body[len(_MAGIC) : header_end])
    stamp = Stamp(size=header["size"], mtime_ns=header["mtime_ns"])
    if header["layout"] != layout or stamp != source.stamp:
        return None
    marks = np.frombuffer(body, dtype="<i8", offset=header_end + 1).astype(np.int64, copy=False)
    return FileIndex(
        count=header["count"],
        samples=marks[: header["marks"]],
        offsets=marks[header["marks"] :],
        damages={damage["offset"]: Damage(**damage) for damage in header["damages"]},
    )
