"""Files at a URL: `s3://`, `gs://`, `hdfs://` by pyarrow, any other scheme by fsspec.

pyarrow's file systems come with a package that is required anyway; they take credentials and end points from the
environment of the vendor's own tools (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, …) and
from the query of the URL (`?endpoint_override=…&scheme=http`).

Failure modes
    A request that fails for a moment is repeated (`retried`). What is missing or forbidden is an error at once.
    A key with `..` in it is refused: its local copy would be outside of the cache.
"""

from __future__ import annotations

import fnmatch
import glob
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from elasticdl.backoff import Backoff
from elasticdl.errors import UserError

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_BACKOFF = Backoff(initial_seconds=0.5, max_seconds=8.0, jitter=0.5)
_ATTEMPTS = 6
_BY_PYARROW = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
# Texts in pyarrow's messages, the only difference between OSErrors of a store.
_PERMANENT = (
    "ACCESS_DENIED",
    "NO_SUCH_BUCKET",
    "NO_SUCH_KEY",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "404",
    "403",
    "401",
)


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A remote object: its path in the file system, and below the location it was listed from."""

    path: str
    relative: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class Location:
    """The location that a URL names: a file system and a path in it."""

    url: str
    filesystem: Any
    path: str

    def at(self, relative: str) -> str:
        return f"{self.path.rstrip('/')}/{relative}"

    def files(self, *, missing_ok: bool = False) -> list[RemoteFile]:
        """Returns the file of this name, those that match a pattern, or all below a folder, sorted by path.

        Raises `UserError` if there is nothing, unless `missing_ok`.
        """
        import pyarrow.fs

        if glob.has_magic(self.path):
            return self._matching()
        info = retried(lambda: self.filesystem.get_file_info(self.path), doing=f"find {self.url}")
        if info.type == pyarrow.fs.FileType.File:
            return [_remote_file(info, info.base_name)]
        files = self._below(self.path)
        if not files and not missing_ok:
            raise UserError(f"There is no file or folder {self.url}.")
        return files

    def _matching(self) -> list[RemoteFile]:
        fixed = self.path[: min(self.path.find(sign) for sign in "*?[" if sign in self.path)]
        folder = fixed.rpartition("/")[0]
        found = [file for file in self._below(folder) if fnmatch.fnmatchcase(file.path, self.path)]
        if not found:
            raise UserError(f"No file matches {self.url}.")
        return found

    def _below(self, folder: str) -> list[RemoteFile]:
        import pyarrow.fs

        selector = pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True)
        infos = retried(lambda: self.filesystem.get_file_info(selector), doing=f"list {self.url}")
        prefix = f"{folder.rstrip('/')}/"
        files = [
            _remote_file(info, info.path.removeprefix(prefix))
            for info in infos
            if info.type == pyarrow.fs.FileType.File
        ]
        return sorted(files, key=lambda file: file.path)


def open_location(url: str) -> Location:
    """Raises `UserError` for a scheme that nothing installed knows, and for malformed URLs."""
    import pyarrow
    import pyarrow.fs

    if url.partition("://")[0].lower() not in _BY_PYARROW:
        return _by_fsspec(url)
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(url)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"The URL {url} cannot be opened: {_first_line(error)}.") from error
    return Location(url=url, filesystem=filesystem, path=path)


def retried(request: Callable[[], _Result], *, doing: str) -> _Result:
    """Returns the result of a request, repeated with growing delays. Raises `UserError` when that does not help."""
    failures = 0
    while True:
        try:
            return request()
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(f"Cannot {doing}: {_first_line(error)}.") from error
        except OSError as error:
            failures += 1
            permanent = any(sign in str(error) for sign in _PERMANENT)
            if permanent or failures == _ATTEMPTS:
                raise UserError(
                    f"Cannot {doing}: {_first_line(error)}.",
                    hint="Check the name, the credentials in the environment, and that the store can be reached.",
                ) from error
            delay = _BACKOFF.delay(failures)
            _log.warning("Retrying in %.1f s: cannot %s: %s", delay, doing, _first_line(error))
            time.sleep(delay)


def _by_fsspec(url: str) -> Location:
    import pyarrow.fs

    scheme = url.partition("://")[0]
    try:
        import fsspec
    except ImportError:
        raise UserError(
            f"Nothing that is installed opens {scheme}:// ({url}).",
            hint="s3, gs and hdfs need no package. Others: pip install fsspec, and the package of that store.",
        ) from None
    try:
        inner, path = fsspec.core.url_to_fs(url)
    except (ImportError, OSError, ValueError) as error:
        raise UserError(f"fsspec does not open {scheme}:// ({url}): {error}.") from error
    filesystem = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(inner))
    return Location(url=url, filesystem=filesystem, path=path)


def _remote_file(info: Any, relative: str) -> RemoteFile:
    if ".." in relative.split("/"):
        raise UserError(
            f"The key {info.path} has `..` in it and cannot be stored locally.", hint="Rename it."
        )
    return RemoteFile(
        path=info.path, relative=relative, size=info.size or 0, mtime_ns=int(info.mtime_ns or 0)
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
