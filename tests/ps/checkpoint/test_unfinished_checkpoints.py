"""What is left of checkpoints that were never finished is removed, but not what a living job may be writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.ps.checkpoint.partial_folders import ABANDONED_SECONDS, partial_folder, sweep

NOW = 1_000_000_000.0


def write(path: Path, *, changed: float) -> Path:
    """A folder in which one of two files was written last, then."""
    path.mkdir(parents=True)
    for name, when in (("ps-0-of-2.edl", changed - 500), ("ps-1-of-2.edl", changed)):
        (path / name).write_text("some")
        os.utime(path / name, (when, when))
    os.utime(path, (changed - 900, changed - 900))
    return path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_of_the_same_run(tmp_path: Path) -> None:
    """All that it has behind it, however new."""
    for barrier in (3, 4, 12):
        write(partial_folder(tmp_path, barrier, run="mine"), changed=NOW)
    removed = sweep(tmp_path, run="mine", barrier=12, now=NOW)
    assert removed == [partial_folder(tmp_path, barrier, run="mine") for barrier in (3, 4)]
    assert left(tmp_path) == [".version-12.mine.partial"]


@pytest.mark.parametrize(("idle", "stays"), [(1.0, True), (-3600.0, True), (ABANDONED_SECONDS + 1, False)])
@pytest.mark.parametrize("name", [".version-12.theirs.partial", ".version-12.partial"])
def test_of_another_run(tmp_path: Path, name: str, idle: float, stays: bool) -> None:
    """Even of a barrier of the same number."""
    write(tmp_path / name, changed=NOW - idle)
    sweep(tmp_path, run="mine", barrier=12, now=NOW)
    assert left(tmp_path) == ([name] if stays else [])


def test_everything_else_stays(tmp_path: Path) -> None:
    names = ["version-10", "version-10.0a1b2c3d", ".version-10.mine", "x.version-10.partial", ".partial"]
    for name in names:
        write(tmp_path / name, changed=0)
    assert sweep(tmp_path, run="mine", barrier=99, now=NOW) == []
    assert left(tmp_path) == sorted(names)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert sweep(tmp_path / "new", run="mine", barrier=1, now=NOW) == []
