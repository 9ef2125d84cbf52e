"""Files that are there whole or not at all, and disk errors in words.

Data sets and indexes are written by processes that may be killed at any moment and read by others at the
same time, so everything is written beside its place under a hidden name and renamed when it is complete. A
disk that is full, or a folder that may not be written, is something the user can put right: it becomes a
`UserError` that names the path, and what was written so far is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from elasticdl.errors import UserError

# A quota and a limit on the size of a file are to their user what a full disk is.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_BUFFER_BYTES = 1 << 20


@contextlib.contextmanager
def disk_errors(path: Path | str, *, doing: str = "write", hint: str = "") -> Iterator[None]:
    """Turns an `OSError` of the block into a `UserError` that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise UserError(
                f"Cannot {doing} {path}: there is no room ({os.strerror(error.errno)}).",
                hint=hint or "Free some space, or choose a folder on another disk.",
            ) from error
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"Cannot {doing} {path}: {reason}.", hint=hint) from error


def hidden_sibling(path: Path) -> Path:
    """Returns a unique name beside the path that readers of the folder ignore."""
    return path.with_name(f".{path.name[:100]}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


class AtomicFile:
    """A binary file that appears under its name, complete, when it is closed.

    Leaving its `with` block by an exception discards it. `durable` waits for the disk before the rename,
    for what cannot be checked when it is read later.
    """

    def __init__(self, path: Path | str, *, durable: bool = False, hint: str = "") -> None:
        self.path = Path(path)
        self._durable = durable
        self._hint = hint
        self._temporary = hidden_sibling(self.path)
        with disk_errors(self.path, hint=self._hint):
            self._file: BinaryIO = open(self._temporary, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._open = True
        self._discarded = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if self._discarded:
            # Compressors on top of it flush once more when they are discarded.
            return len(data)
        try:
            with disk_errors(self.path, hint=self._hint):
                return self._file.write(data)
        except UserError:
            self.discard()
            raise

    def flush(self) -> None:
        """Does nothing before the end; other writers on top of this one call it."""

    def close(self) -> None:
        if not self._open:
            return
        try:
            with disk_errors(self.path, hint=self._hint):
                self._file.flush()
                if self._durable:
                    os.fsync(self._file.fileno())
                self._file.close()
                os.replace(self._temporary, self.path)
        except UserError:
            self.discard()
            raise
        self._open = False

    def discard(self) -> None:
        """Gives up what was written. Safe to repeat, and after close."""
        if not self._open:
            return
        self._open = False
        self._discarded = True
        # Buffered bytes may fail to be written once more; they are discarded anyhow.
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
