"""Checkpoints at a URL: uploaded whole, found by age, and fetched with what they need."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.remote.upload import upload
from elasticdl.errors import UserError
from elasticdl.master.checkpointing.remote_copy import RemoteCopy
from elasticdl.ps.checkpoint.array_file import NamedArrays, write_array_file
from elasticdl.ps.checkpoint.checkpoint_folders import (
    Manifest,
    SavedFile,
    chain,
    find_checkpoint,
    manifest_crc32,
    prune,
    publish,
    write_manifest,
)
from tests.s3_server import BUCKET, names

FILE = "ps-0-of-1.edl"
URL = f"s3://{BUCKET}/checkpoints"


def write(folder: Path, step: int, *, base: str = "", after: int = 0) -> Path:
    partial = folder / ".partial"
    partial.mkdir(parents=True)
    size, crc32 = write_array_file(partial / FILE, NamedArrays(groups={"g": {"a": np.full(3, step)}}))
    base_crc32 = (manifest_crc32(folder / base) or 0) if base else 0
    files = (SavedFile(name=FILE, bytes=size, crc32=crc32),)
    write_manifest(
        partial, Manifest(step=step, files=files, base=base, base_crc32=base_crc32), None, after=after
    )
    return publish(partial, folder, step)


def steps(url: str = URL) -> list[int]:
    return [each.manifest.step for each in chain(find_checkpoint(url))]


def test_newest_is_found_with_checkpoints_it_needs(bucket: Any, tmp_path: Path) -> None:
    copy = RemoteCopy(URL, tmp_path / "job")
    write(tmp_path / "job", 10)
    write(tmp_path / "job", 20)
    write(tmp_path / "job", 30, base="version-20")
    copy.upload()
    assert steps() == [20, 30]
    assert steps(f"{URL}/version-30") == [20, 30]
    assert steps(f"{URL}/version-10") == [10]
    # Parameters of others are not fetched.
    fetched = [path.parent.name for path in (tmp_path / "cache" / "remote").rglob(FILE)]
    assert fetched.count("version-10") == 1


def test_checkpoint_removed_locally_is_removed_at_url(bucket: Any, tmp_path: Path) -> None:
    copy = RemoteCopy(URL, tmp_path / "job")
    for step in (10, 20):
        write(tmp_path / "job", step)
        copy.upload()
    assert steps() == [20]
    prune(tmp_path / "job", 1)
    copy.prune()
    assert names(bucket, "checkpoints") == ["version-20/manifest.json", f"version-20/{FILE}"]


def test_checkpoint_of_later_job_is_newest_although_its_step_is_lower(bucket: Any, tmp_path: Path) -> None:
    first = RemoteCopy(URL, tmp_path / "first")
    for step in (10, 20, 30):
        write(tmp_path / "first", step)
    first.upload()
    second = RemoteCopy(URL, tmp_path / "second")
    write(tmp_path / "second", 5, after=second.highest_serial())
    second.upload()
    assert steps() == [5]


def test_checkpoint_replaced_under_its_name_is_fetched_again(bucket: Any, tmp_path: Path) -> None:
    copy = RemoteCopy(URL, tmp_path / "job")
    write(tmp_path / "job", 10)
    copy.upload()
    before = find_checkpoint(URL).manifest.serial
    write(tmp_path / "job", 10)
    copy.upload()
    assert find_checkpoint(URL).manifest.serial > before
    assert steps() == [10]


def test_folder_removed_from_url_is_removed_from_cache(bucket: Any, tmp_path: Path) -> None:
    write(tmp_path / "job", 10)
    write(tmp_path / "job", 20)
    copy = RemoteCopy(URL, tmp_path / "other")
    upload(tmp_path / "job", URL)
    assert steps() == [20]
    bucket.delete_dir(f"{BUCKET}/checkpoints/version-20")
    assert steps() == [10]
    assert copy.highest_serial() == 1


def test_upload_without_its_manifest_is_no_checkpoint(bucket: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "job", 10)
    shutil.copy(path / FILE, tmp_path / FILE)
    upload(tmp_path / FILE, f"{URL}/version-10/{FILE}")
    with pytest.raises(UserError, match="no checkpoint"):
        find_checkpoint(URL)


def test_export_of_one_file_is_found_by_values_beside_it(bucket: Any, tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"model")
    upload(tmp_path / "model.keras", f"s3://{BUCKET}/model.keras")
    upload(write(tmp_path / "job", 7), f"s3://{BUCKET}/model.keras.elasticdl")
    assert steps(f"s3://{BUCKET}/model.keras") == [7]


def test_file_with_suffix_of_compression_arrives_as_it_is(bucket: Any, tmp_path: Path) -> None:
    (tmp_path / "words.gz").write_bytes(b"not compressed")
    upload(tmp_path / "words.gz", f"s3://{BUCKET}/words.gz")
    with bucket.open_input_stream(f"{BUCKET}/words.gz", compression=None) as file:
        assert file.read() == b"not compressed"
