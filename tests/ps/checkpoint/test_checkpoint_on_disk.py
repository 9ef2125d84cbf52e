"""What is written of a checkpoint is on the disk before it gets its name: the files, and the folder they are in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.ps.checkpoint.checkpoint_folders import LEDGER, MANIFEST, Manifest, publish, write_manifest


def test_its_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "partial"
    folder.mkdir()
    synced: list[int] = []
    renamed: list[int] = []
    sync, rename = os.fsync, os.rename

    def seen(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def moved(*given: Path) -> None:
        renamed.append(len(synced))
        rename(*given)

    monkeypatch.setattr(os, "fsync", seen)
    monkeypatch.setattr(os, "rename", moved)
    write_manifest(folder, Manifest(step=5, files=()), {"datasets": {}})
    places = [folder / LEDGER, folder / MANIFEST, folder, tmp_path]
    expected = [place.stat().st_ino for place in places]
    publish(folder, tmp_path, 5)
    assert synced == expected
    assert renamed == [3]
