"""Checkpoints that need others: kept as long as they are needed, and refused if they are not what was built upon."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file
from elasticdl.ps.checkpoint.checkpoint_folders import (
    Manifest,
    SavedFile,
    chain,
    find_checkpoint,
    manifest_crc32,
    prune,
    publish,
    read_checkpoint,
    write_manifest,
)

FILE = "ps-0-of-1.edl"


def write(folder: Path, step: int, *, base: str = "", value: float = 0.0) -> Path:
    partial = folder / ".partial"
    partial.mkdir(parents=True)
    size, crc32 = write_array_file(partial / FILE, NamedArrays(groups={"g": {"a": np.full(3, value)}}))
    crc32_of_base = (manifest_crc32(folder / base) or 0) if base else 0
    files = (SavedFile(name=FILE, bytes=size, crc32=crc32),)
    write_manifest(partial, Manifest(step=step, files=files, base=base, base_crc32=crc32_of_base), None)
    return publish(partial, folder, step)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(folder: Path) -> list[int]:
    return [each.manifest.step for each in chain(find_checkpoint(str(folder)))]


def test_prune_keeps_bases_of_kept_checkpoints(tmp_path: Path) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20, base="version-10")
    write(tmp_path, 30, base="version-20")
    prune(tmp_path, 1)
    assert steps(tmp_path) == [10, 20, 30]
    write(tmp_path, 40)
    write(tmp_path, 50, base="version-40")
    prune(tmp_path, 2)
    assert names(tmp_path) == ["version-40", "version-50"]
    prune(tmp_path, 0)
    assert names(tmp_path) == ["version-40", "version-50"]


def test_that_of_the_job_itself_is_kept(tmp_path: Path) -> None:
    """Another job writes into the same folder, and more often."""
    write(tmp_path, 10)
    write(tmp_path, 20, base="version-10")
    for step in (30, 40):
        write(tmp_path, step)
    prune(tmp_path, 1, own=tmp_path / "version-20")
    assert names(tmp_path) == ["version-10", "version-20", "version-40"]


def test_the_first_written_go_whatever_their_step(tmp_path: Path) -> None:
    for step in (300, 400, 500):
        write(tmp_path, step)
    # Another run in the same folder.
    write(tmp_path, 100)
    prune(tmp_path, 3)
    assert names(tmp_path) == ["version-100", "version-400", "version-500"]
    prune(tmp_path, 1)
    assert names(tmp_path) == ["version-100"]


def test_of_a_step_there_is_one(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        write(tmp_path, 10, value=value)
    assert names(tmp_path) == ["version-10"]
    (found,) = chain(find_checkpoint(str(tmp_path)))
    assert read_array_file(found.data_files()[0]).groups["g"]["a"][0] == 3


def test_one_may_be_named_in_other_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    write(folder, 10)
    newest = write(folder, 20, base="version-10")
    (tmp_path / "link").symlink_to(newest)
    assert steps(tmp_path / "link") == [10, 20]
    monkeypatch.chdir(newest)
    assert steps(Path()) == [10, 20]


def test_one_that_is_needed_steps_aside_for_another_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, 10, value=1)
    write(tmp_path, 20, base="version-10", value=2)
    write(tmp_path, 30, base="version-20", value=3)
    # The job has gone back to the beginning.
    write(tmp_path, 10, value=4)
    write(tmp_path, 20, base="version-10", value=5)
    assert len(names(tmp_path)) == 5
    values: list[int] = []
    for each in chain(read_checkpoint(tmp_path / "version-30")):
        assert each.manifest.step == 10 * (len(values) + 1)
        values.append(each.path.name.count("."))
    assert values == [1, 1, 0]
    assert [each.path.name for each in chain(read_checkpoint(tmp_path / "version-20"))] == [
        "version-10",
        "version-20",
    ]
    prune(tmp_path, 3)
    assert len(names(tmp_path)) == 5
    write(tmp_path, 30, base="version-20", value=6)
    prune(tmp_path, 1)
    assert names(tmp_path) == ["version-10", "version-20", "version-30"]


def test_two_of_one_step_of_which_one_needs_the_other(tmp_path: Path) -> None:
    write(tmp_path, 10, value=1)
    write(tmp_path, 10, base="version-10", value=2)
    assert steps(tmp_path) == [10, 10]
    prune(tmp_path, 1)
    assert steps(tmp_path) == [10, 10]
    write(tmp_path, 20)
    prune(tmp_path, 1)
    assert names(tmp_path) == ["version-20"]


def test_unneeded_checkpoint_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, 10, value=1)
    write(tmp_path, 10, value=2)
    assert names(tmp_path) == ["version-10"]


def test_a_base_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20, base="version-10")
    shutil.rmtree(tmp_path / "version-10")
    with pytest.raises(
        UserError, match="only what changed since version-10, which is not beside it"
    ) as error:
        chain(find_checkpoint(str(tmp_path)))
    assert "Put version-10 into the same folder" in error.value.hint


def test_another_checkpoint_under_the_name_of_the_base(tmp_path: Path) -> None:
    write(tmp_path / "one", 10, value=1)
    write(tmp_path / "one", 20, base="version-10")
    write(tmp_path / "other", 10, value=2)
    shutil.rmtree(tmp_path / "one" / "version-10")
    shutil.copytree(tmp_path / "other" / "version-10", tmp_path / "one" / "version-10")
    with pytest.raises(UserError, match="since version-10, and the one beside it is another"):
        chain(find_checkpoint(str(tmp_path / "one")))


def test_file_of_another_checkpoint_is_reported_as_damage(tmp_path: Path) -> None:
    """Whole, and as long as the right one."""
    write(tmp_path, 10, value=1)
    write(tmp_path, 20, base="version-10", value=2)
    write(tmp_path, 30, base="version-20", value=3)
    shutil.copy(tmp_path / "version-30" / FILE, tmp_path / "version-20" / FILE)
    message = r"version-20 is damaged: ps-0-of-1\.edl is not the file that was written for it"
    with pytest.raises(UserError, match=message):
        chain(find_checkpoint(str(tmp_path)))


def test_truncated_base_is_reported_as_damage(tmp_path: Path) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20, base="version-10")
    file = tmp_path / "version-10" / FILE
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"version-10 is damaged: ps-0-of-1\.edl should have \d+ bytes"):
        chain(find_checkpoint(str(tmp_path)))


def test_one_of_a_later_version(tmp_path: Path) -> None:
    place = write(tmp_path, 10) / "manifest.json"
    assert json.loads(place.read_text())["format"] == 1
    place.write_text(json.dumps({**json.loads(place.read_text()), "format": 3}))
    with pytest.raises(
        UserError, match="has format 3; this version of ElasticDL reads formats up to 2"
    ) as error:
        find_checkpoint(str(tmp_path))
    assert "later" in error.value.hint


def test_incremental_manifest_has_newer_format_number(tmp_path: Path) -> None:
    write(tmp_path, 10)
    place = write(tmp_path, 20, base="version-10") / "manifest.json"
    assert json.loads(place.read_text())["format"] == 2
