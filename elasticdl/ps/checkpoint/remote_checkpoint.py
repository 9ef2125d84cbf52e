"""Checkpoints and exports at a URL: the newest, or the one that is named, is copied into the cache of this machine.

Manifests and ledgers are small: all of them are copied, to see which checkpoint is the newest and which others it
needs. Parameters are copied of these alone. What is no longer at the URL is removed from the cache, where it would be
taken for a checkpoint that is there.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from elasticdl.data.remote.location import Location, RemoteFile, open_location
from elasticdl.data.remote.mirror import copy, fetch_all, local_path, mirror_folder


def fetch_folder(url: str, *, small: frozenset[str]) -> RemoteFolder:
    """Lists what is at the URL and copies the files of these names. Raises `UserError` if nothing can be listed."""
    location = open_location(url)
    files = location.files(missing_ok=True)
    folder = RemoteFolder(location=location, files=files)
    folder.remove_stale()
    folder.refresh(small)
    return folder


class RemoteFolder:
    """The copy of a folder, of which some files are not there yet."""

    def __init__(self, *, location: Location, files: list[RemoteFile]) -> None:
        self._location = location
        self._files = files
        self.path = mirror_folder(location)

    def fetch(self, below: Path) -> None:
        """Copies all files below a folder of the copy."""
        prefix = below.relative_to(self.path).as_posix()
        wanted = [file for file in self._files if prefix == "." or file.relative.startswith(f"{prefix}/")]
        fetch_all(self._location, wanted)

    def refresh(self, names: frozenset[str]) -> None:
        """Copies the files of these names again. Where one has changed, so has what is beside it.

        Stores tell the time of a change in seconds: by time and size alone, a checkpoint that has replaced another one
        would be taken for that.
        """
        with tempfile.TemporaryDirectory() as fresh:
            for number, file in enumerate(file for file in self._files if _name(file) in names):
                new, known = Path(fresh, str(number)), local_path(self._location, file)
                copy(self._location, file, new)
                if not known.exists() or known.read_bytes() != new.read_bytes():
                    shutil.rmtree(known.parent, ignore_errors=True)
        fetch_all(self._location, [file for file in self._files if _name(file) in names])

    def remove_stale(self) -> None:
        """Removes folders that are not at the URL any more."""
        there = {file.relative.partition("/")[0] for file in self._files}
        for child in self.path.iterdir() if self.path.is_dir() else ():
            if child.is_dir() and child.name not in there:
                shutil.rmtree(child, ignore_errors=True)


def _name(file: RemoteFile) -> str:
    return file.relative.rpartition("/")[2]


def sibling_url(url: str, suffix: str) -> str:
    """Returns the URL of what stands beside a file under its name with a suffix."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}{suffix}{mark}{query}"


def parent_and_name(url: str) -> tuple[str, str]:
    """Returns the URL of the folder above, and the last part of the path."""
    path, mark, query = url.partition("?")
    parent, _, name = path.rstrip("/").rpartition("/")
    return f"{parent}{mark}{query}", name
