"""Local copies of remote files, in the cache folder of this machine.

Samples are reached by their index, in any order and many times, so a file is copied once and then read like any local
one. All processes of a machine share the copies; a later job finds them there, as long as size and time of the remote
file are the same.

    CACHE/remote/KEY-OF-THE-URL/path/of/the/file

Failure modes
    The disk is full: an error that names the cache folder. The file is longer or shorter than it was listed: an error,
    because it is being written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elasticdl.data.files.atomic_file import AtomicFile, disk_errors
from elasticdl.data.files.cache_paths import Stamp, cache_folder
from elasticdl.data.files.data_file import machine_lock
from elasticdl.data.remote.location import Location, RemoteFile, retried
from elasticdl.errors import UserError

_COPY_BYTES = 4 << 20
# Waiting for the network, mostly.
_THREADS = 8
_HINT = "Set ELASTICDL_CACHE to a folder with room for local copies of the data."


def mirror_folder(location: Location) -> Path:
    """Returns the folder of the copies of a location's files. Credentials in a URL's query are no part of the name."""
    bare = location.url.partition("?")[0]
    return cache_folder() / "remote" / hashlib.sha256(bare.encode()).hexdigest()[:24]


def local_path(location: Location, file: RemoteFile) -> Path:
    """Returns the path of the copy of a file."""
    return mirror_folder(location) / file.relative


def fetch_all(location: Location, files: Iterable[RemoteFile]) -> list[Path]:
    """Copies the files that are not there yet, several at a time. Returns their local paths."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch-data") as threads:
        return list(threads.map(lambda file: fetch(location, file), files))


def fetch(location: Location, file: RemoteFile) -> Path:
    """Copies the file, unless the copy is there. Returns its local path."""
    path = local_path(location, file)
    if _is_copy(path, file):
        return path
    with disk_errors(path, hint=_HINT):
        path.parent.mkdir(parents=True, exist_ok=True)
    # The other processes of this machine want the same copy.
    with machine_lock(path.with_name(f".{path.name}.lock")):
        if not _is_copy(path, file):
            copy(location, file, path)
    return path


def copy(location: Location, file: RemoteFile, path: Path) -> None:
    """Copies the file to a path, whatever is there."""
    retried(lambda: _copy(location, file, path), doing=f"read {file.path}")


def _is_copy(path: Path, file: RemoteFile) -> bool:
    try:
        found = Stamp.of(path)
    except OSError:
        return False
    # Stores without times are known by size alone.
    return found.size == file.size and file.mtime_ns in (0, found.mtime_ns)


def _copy(location: Location, file: RemoteFile, path: Path) -> None:
    size = 0
    # By default pyarrow decompresses what has the suffix of a compressed file.
    opened = location.filesystem.open_input_stream(file.path, compression=None)
    with opened as source, AtomicFile(path, hint=_HINT) as copy:
        while block := source.read(_COPY_BYTES):
            size += copy.write(block)
        if size != file.size:
            raise UserError(
                f"{file.path} has {size} bytes, but {file.size} when it was listed.",
                hint="Data must stay as it is as long as a job uses it. Start the job again.",
            )
    if file.mtime_ns:
        with disk_errors(path):
            os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
