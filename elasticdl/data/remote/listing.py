"""The data set that a URL names, as files in the cache folder of this machine.

Parquet says at its end what is in it, so its files are copied one by one when a row of them is first read. The records
of other formats are counted by reading them all: their files are copied before the first sample.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from elasticdl.data.files.file_listing import Listing, passed_over
from elasticdl.data.remote.location import Location, RemoteFile, open_location, retried
from elasticdl.data.remote.mirror import fetch, fetch_all, local_path, mirror_folder
from elasticdl.errors import UserError

_log = logging.getLogger(__name__)
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, kw_only=True)
class LazyCopy:
    """A remote file that is copied when its content is needed."""

    location: Location
    file: RemoteFile

    @property
    def path(self) -> Path:
        """Returns the path of the local copy."""
        return local_path(self.location, self.file)

    def fetch(self) -> None:
        fetch(self.location, self.file)

    def open_remote(self) -> Any:
        """A file object that reads ranges from the store."""
        return retried(
            lambda: self.location.filesystem.open_input_file(self.file.path), doing=f"read {self.file.path}"
        )


@dataclass(frozen=True, kw_only=True)
class RemoteListing(Listing):
    """Local paths; those of `copies` have no file yet."""

    copies: Mapping[Path, LazyCopy]


def remote_listing(url: str, params: Mapping[str, str]) -> RemoteListing:
    """Raises `UserError` if there is nothing at the URL, or no data in it."""
    location = open_location(url)
    found = location.files()
    is_single = [file.path for file in found] == [location.path]
    files = [file for file in found if is_single or not _is_passed_over(file.relative)]
    if not files:
        raise UserError(f"The folder {url} holds no data files.")
    if params.get("format", "").lower() == "parquet" or all(
        PurePosixPath(file.relative).suffix.lower() in _PARQUET for file in files
    ):
        lazy = [LazyCopy(location=location, file=file) for file in files]
        copies = {copy.path: copy for copy in lazy}
    else:
        size = sum(file.size for file in files)
        _log.info("Copying %s: %d files, %d bytes, into the cache folder", url, len(files), size)
        fetch_all(location, files)
        copies = {}
    paths = tuple(local_path(location, file) for file in files)
    return RemoteListing(
        origin=url, root=mirror_folder(location), paths=paths, single=is_single, copies=copies
    )


def _is_passed_over(relative: str) -> bool:
    return any(passed_over(part) for part in relative.split("/"))
