"""Folders of checkpoints that are being written, and what is left of those that never were finished.

    DIR/.version-12.0a1b2c3d4e5f6071.partial   of barrier 12, by the run of a job that is known by these digits

A kill in the middle of writing leaves such a folder behind, and it may be large. The writer of the next checkpoint
removes abandoned folders: those of earlier barriers of its own run, and those of another run that have not changed
for long. Another run may be a living job with the same folder, here or on another machine.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

# Files grow while they are written, and all of a checkpoint at once. But a machine may sleep, and clocks differ.
ABANDONED_SECONDS = 24 * 3600.0
# Runs were not in the name at first.
_NAME = re.compile(r"\.version-(\d+)(?:\.([^.]+))?\.partial$")


def partial_folder(directory: Path, barrier: int, *, run: str) -> Path:
    """Returns the folder into which the files of the checkpoint of a barrier are written."""
    return directory / f".version-{barrier}.{run}.partial"


def sweep(directory: Path, *, run: str, barrier: int, now: float) -> list[Path]:
    """Removes abandoned folders, and returns them. `barrier`: the current one of the run."""
    abandoned = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        match = _NAME.match(path.name)
        if match is None:
            continue
        number, owner = match.groups()
        behind = owner == run and int(number) < barrier
        idle = owner != run and now - _changed_at(path, now) > ABANDONED_SECONDS
        if behind or idle:
            shutil.rmtree(path, ignore_errors=True)
            abandoned.append(path)
    return abandoned


def _changed_at(folder: Path, now: float) -> float:
    """When anything there was changed last; what cannot be known is taken for new."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return now
