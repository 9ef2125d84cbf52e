"""A data file as readers use it: bytes at any offset, however they are stored.

A compressed file cannot be entered in the middle, and samples must be reached by their index. Restart
points inside the compressed stream would need access to the decoder's inner state, which Python's decoders
do not give (and which bzip2, xz and zstd would each need in another way). So a compressed file is
decompressed once, into the cache folder, and read from there: any decoder will do, every later read is as
fast as without compression, and the price, one uncompressed copy on the local disk, is said in the log. Who
cannot afford it converts the data set to RecordIO or Parquet, which compress piece by piece (`elasticdl
data convert`).

Files are opened for every read and closed after it, and read by offset only. So any number of threads, and
processes forked at any moment, may read the same source, and a data set of many thousand files holds open
only those that are being read. Every opening checks that the file is still the one that was indexed.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elasticdl.data.files.atomic_file import AtomicFile, disk_errors
from elasticdl.data.files.cache_paths import Stamp, cache_folder, cache_key
from elasticdl.errors import UserError

_log = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20
# By what the file starts with, because suffixes lie: TensorFlow names its gzip files .tfrecord. The fourth
# to tenth byte of bzip2 are the magic of its first block, without which a text could look like it.
_SIGNATURES = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_CACHE_HINT = (
    "Set ELASTICDL_CACHE to a folder with room for the decompressed data, or convert it to RecordIO."
)
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data file: the name its user knows, and the place its bytes are read from."""

    path: Path
    stamp: Stamp
    plain: Path
    plain_stamp: Stamp

    @property
    def size(self) -> int:
        return self.plain_stamp.size

    @property
    def compressed(self) -> bool:
        return self.plain != self.path

    def where(self, offset: int) -> str:
        return f"{self.path}, byte {offset}{' after decompression' if self.compressed else ''}"

    @contextlib.contextmanager
    def open(self) -> Iterator[int]:
        """A file descriptor of the plain bytes, for `read_at`."""
        with disk_errors(self.path, doing="read"):
            try:
                descriptor = os.open(self.plain, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if not self.compressed:
                    raise
                # The cache folder was cleaned meanwhile.
                descriptor = os.open(open_source(self.path).plain, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = Stamp.of(descriptor)
            if found.size != self.plain_stamp.size or (
                not self.compressed and found.mtime_ns != self.plain_stamp.mtime_ns
            ):
                raise UserError(
                    f"{self.path} has changed while it was being read.",
                    hint="Data must stay as it is as long as a job uses it. Start the job again.",
                )
            yield descriptor
        finally:
            os.close(descriptor)


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Reads so many bytes at the offset, fewer only at the end of the file."""
    data = os.pread(descriptor, size, offset)
    if len(data) in (0, size):
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        data = os.pread(descriptor, missing, offset + size - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def compression_of(path: Path) -> str:
    """ "gzip", "bzip2", "xz", "zstd" or "" by the first bytes of the file."""
    with disk_errors(path, doing="read"), open(path, "rb") as file:
        return _compression(file.read(10))


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed if it is compressed; needs no copy of it."""
    with disk_errors(path, doing="read"), open(path, "rb") as file:
        head = file.read(max(size, 10))
    compression = _compression(head)
    if not compression:
        return head[:size]
    with _decoding(path, compression), _decompressed(path, compression) as stream:
        return stream.read(size)


def open_source(path: Path) -> Source:
    """The file, decompressed into the cache folder first if need be."""
    with disk_errors(path, doing="read"):
        stamp = Stamp.of(path)
    compression = compression_of(path)
    if not compression:
        return Source(path=path, stamp=stamp, plain=path, plain_stamp=stamp)
    plain = _plain_copy(path, stamp, compression)
    return Source(path=path, stamp=stamp, plain=plain, plain_stamp=Stamp.of(plain))


def _plain_copy(path: Path, stamp: Stamp, compression: str) -> Path:
    folder = cache_folder() / "plain"
    key = cache_key(path)
    plain = folder / f"{key}-{stamp.size}-{stamp.mtime_ns}"
    if plain.exists():
        return plain
    _log.info("decompressing %s (%d bytes) into %s, once", path, stamp.size, folder)
    with disk_errors(folder, hint=_CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
    # One process of this machine does it while the others wait, because each would need the whole room.
    with machine_lock(folder / f"{key}.lock"):
        if not plain.exists():
            for stale in folder.glob(f"{key}-*"):
                stale.unlink(missing_ok=True)
            size = _decompress(path, compression, plain)
            _log.info("%s takes %d bytes decompressed", path, size)
    return plain


def _decompress(path: Path, compression: str, plain: Path) -> int:
    # Durable, because nothing would tell a copy that a power cut has left half written.
    with (
        AtomicFile(plain, durable=True, hint=_CACHE_HINT) as copy,
        _decoding(path, compression),
        _decompressed(path, compression) as stream,
    ):
        size = 0
        while block := stream.read(_COPY_BYTES):
            size += copy.write(block)
    return size


@contextlib.contextmanager
def _decoding(path: Path, compression: str) -> Iterator[None]:
    import lzma
    import zlib

    try:
        yield
    except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"Cannot read {path}: {os.strerror(error.errno)}.") from error
        raise UserError(
            f"{path} cannot be decompressed ({compression}): {error}.",
            hint="The file is damaged or was cut short; how many samples it lost is unknown. Replace it.",
        ) from error


def _decompressed(path: Path, compression: str) -> contextlib.AbstractContextManager[_Readable]:
    import bz2
    import gzip
    import lzma

    if compression == "gzip":
        return gzip.open(path, "rb")
    if compression == "bzip2":
        return bz2.open(path, "rb")
    if compression == "xz":
        return lzma.open(path, "rb")
    import pyarrow

    stream: contextlib.AbstractContextManager[_Readable] = pyarrow.CompressedInputStream(
        pyarrow.OSFile(str(path), "rb"), "zstd"
    )
    return stream


def _compression(head: bytes) -> str:
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return "bzip2"
    return next((name for signature, name in _SIGNATURES if head.startswith(signature)), "")


@contextlib.contextmanager
def machine_lock(path: Path) -> Iterator[None]:
    """Alone on this machine; the lock falls with the process that holds it."""
    with disk_errors(path, hint=_CACHE_HINT):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # Where the file system has no locks, several may do the same work; the rename at its end keeps it
        # right.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
