"""Appending to a TFRecord file that others read meanwhile, as event files are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.tfrecord_frames import TFRecordWriter, frame
from elasticdl.errors import UserError


def test_flushed_records_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events"
    writer = TFRecordWriter(path)
    writer.write(b"one")
    writer.flush()
    assert path.read_bytes() == frame(b"one")
    writer.write(b"two")
    writer.close()
    assert path.read_bytes() == frame(b"one") + frame(b"two")


def test_appends_to_what_is_there(tmp_path: Path) -> None:
    for record in (b"one", b"two"):
        with TFRecordWriter(tmp_path / "events") as writer:
            writer.write(record)
    reader = open_reader(str(tmp_path / "events"))
    assert list(reader.read(0, 2)) == [b"one", b"two"]


@pytest.mark.parametrize("torn", [1, 11, 12, 14, 18])
def test_torn_record_at_the_end_is_removed(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "events"
    path.write_bytes(frame(b"one") + frame(b"two")[:torn])
    with TFRecordWriter(path) as writer:
        writer.write(b"three")
    assert path.read_bytes() == frame(b"one") + frame(b"three")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing/events"):
        TFRecordWriter(tmp_path / "missing" / "events")


def test_tfrecord_writer_writes_large_records(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "events") as writer:
        for _ in range(3):
            writer.write(os.urandom(700_000))
    assert len(open_reader(str(tmp_path / "events"))) == 3
