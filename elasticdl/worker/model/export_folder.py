"""The folder of an export: written beside its place first, so that a reader never sees half of one.

A folder that is new gets its files when all are written; in one that exists each file is replaced at a stroke, and
files that are not ours are left alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticdl.errors import UserError


@contextlib.contextmanager
def neighbour(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, path: Path, names: Sequence[str]) -> None:
    """Moves the files to their place. Those of these names that were not written are removed there."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    if not path.exists():
        # A folder of mkdtemp is for its owner alone; one made by mkdir shows what others may see here.
        path.mkdir()
    for name in names:
        if (folder / name).exists():
            os.replace(folder / name, path / name)
        else:
            # Left of an earlier export, it would be another model than the rest.
            (path / name).unlink(missing_ok=True)


class NotWritten(Exception):
    """The disk's fault, not the model's."""


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, NotWritten) as error:
        cause = error.__cause__ if isinstance(error, NotWritten) else error
        assert isinstance(cause, OSError)
        reason = "the disk is full" if cause.errno == errno.ENOSPC else cause.strerror or str(cause)
        raise UserError(
            f"The model could not be written to {path}: {reason}.",
            hint="Make room or choose another folder with --output, and export from the last checkpoint.",
        ) from cause
