"""The places of files derived from a data file: beside it, or in the cache folder.

The cache folder is `$ELASTICDL_CACHE`, or else `~/.cache/elasticdl`. Names in it are made of the data
file's absolute path, so files of the same name do not collide; whether an entry still fits its file is decided by
a `Stamp`.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """Size and time of a file: as long as they are the same, so is taken to be what is in it."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path | str | int) -> Stamp:
        status = os.stat(file)
        return cls(size=status.st_size, mtime_ns=status.st_mtime_ns)


def cache_folder() -> Path:
    named = os.environ.get("ELASTICDL_CACHE")
    return Path(named).expanduser() if named else Path(os.path.expanduser("~")) / ".cache" / "elasticdl"


def cache_key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:24]
