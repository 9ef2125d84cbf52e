"""Puts files and folders at a URL.

An object store shows an object when it is complete. On other file systems a file is written beside its place and moved.
A folder cannot appear at one stroke: its files are put in the order in which a reader may find them, the one that says
what belongs to it last.

Failure modes
    The store cannot be reached: requests are repeated, then an error. What was put until then remains, without the
    last file.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.data.remote.location import Location, open_location, retried

_COPY_BYTES = 4 << 20
_THREADS = 8
# File systems in which a file under its final name is always whole.
_OBJECT_STORES = ("s3", "gcs")


def upload(path: Path, url: str, *, last: str = "") -> None:
    """Puts a file, or all files of a folder, at the URL; files named `last` after all others."""
    location = open_location(url)
    if path.is_file():
        _put(location, path, location.path)
        return
    files = sorted(file for file in path.rglob("*") if file.is_file())
    first = [file for file in files if file.name != last]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="upload") as threads:
        list(
            threads.map(
                lambda file: _put(location, file, location.at(file.relative_to(path).as_posix())), first
            )
        )
    for file in files:
        if file.name == last:
            _put(location, file, location.at(file.relative_to(path).as_posix()))


def delete_folder(url: str) -> None:
    """Removes a folder and all that is in it, if it is there."""
    location = open_location(url)

    def delete() -> None:
        with contextlib.suppress(FileNotFoundError):
            location.filesystem.delete_dir(location.path)

    retried(delete, doing=f"delete {url}")


def _put(location: Location, path: Path, target: str) -> None:
    retried(lambda: _copy(location, path, target), doing=f"write {target} ({location.url})")


def _copy(location: Location, path: Path, target: str) -> None:
    if location.filesystem.type_name in _OBJECT_STORES:
        _write(location, path, target)
        return
    folder, _, name = target.rpartition("/")
    location.filesystem.create_dir(folder, recursive=True)
    partial = f"{folder}/.{name}.partial"
    _write(location, path, partial)
    location.filesystem.move(partial, target)


def _write(location: Location, path: Path, target: str) -> None:
    with disk_errors(path, doing="read"):
        source = path.open("rb")
    with source, location.filesystem.open_output_stream(target, compression=None) as sink:
        while block := source.read(_COPY_BYTES):
            sink.write(block)
