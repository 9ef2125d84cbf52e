"""Of a folder of checkpoints the one that was written last is meant, whatever its step, and that one is kept."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from elasticdl.ps.checkpoint.checkpoint_folders import (
    Manifest,
    find_checkpoint,
    prune,
    publish,
    write_manifest,
)


def write(folder: Path, step: int) -> Path:
    partial = folder / ".partial"
    partial.mkdir(parents=True)
    write_manifest(partial, Manifest(step=step, files=()), None)
    return publish(partial, folder, step)


def unnumbered(place: Path, *, written: int) -> None:
    """As by a version that did not number them, at that second."""
    file = place / "manifest.json"
    document = json.loads(file.read_text())
    del document["serial"]
    file.write_text(json.dumps(document))
    os.utime(file, (written, written))


def newest(folder: Path) -> str:
    return find_checkpoint(str(folder)).path.name


def test_a_new_run_in_the_folder_of_an_old_one(tmp_path: Path) -> None:
    for step in (300, 400, 100, 200):
        write(tmp_path, step)
        assert newest(tmp_path) == f"version-{step}"
    prune(tmp_path, 1)
    assert newest(tmp_path) == "version-200"


def test_checkpoint_after_rollback_is_newest(tmp_path: Path) -> None:
    for step in (10, 20, 30, 20):
        write(tmp_path, step)
    assert newest(tmp_path) == "version-20"


@pytest.mark.parametrize("seconds", [-1000, 0, 1000])
def test_newest_checkpoint_is_independent_of_clocks_and_copies(tmp_path: Path, seconds: int) -> None:
    for number, step in enumerate((300, 100, 200)):
        file = write(tmp_path / "one", step) / "manifest.json"
        os.utime(file, (10_000 + number * seconds, 10_000 + number * seconds))
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copy)
    assert newest(tmp_path / "one") == newest(tmp_path / "two") == "version-200"


def test_unnumbered_checkpoints_sort_by_date_before_numbered_ones(tmp_path: Path) -> None:
    for step, written in ((300, 20), (100, 40), (200, 30)):
        unnumbered(write(tmp_path, step), written=written)
    assert newest(tmp_path) == "version-100"
    # By the same clock it would be older.
    os.utime(write(tmp_path, 50) / "manifest.json", (10, 10))
    assert newest(tmp_path) == "version-50"
    prune(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["version-100", "version-200", "version-50"]


def test_one_that_cannot_be_read_is_no_reason_not_to_write(tmp_path: Path) -> None:
    (write(tmp_path, 10) / "manifest.json").write_text("[]")
    (write(tmp_path, 20) / "manifest.json").write_text("{")
    write(tmp_path, 5)
    assert newest(tmp_path) == "version-5"
