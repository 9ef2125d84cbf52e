"""What is appended is read again, by the same journal and by the next one; compaction keeps what it amounts to."""

from __future__ import annotations

import json
import math
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.master.journal import Journal, JournalError, read_folder


def content(folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    with Journal(folder) as journal:
        snapshot, records = journal.read()
        return snapshot, list(records)


def test_a_new_journal_is_empty(tmp_path: Path) -> None:
    assert content(tmp_path / "deep" / "below") == (None, [])


def test_records_come_back_in_order(tmp_path: Path) -> None:
    records = [
        {"n": n, "text": "line\nbreak \u2028 ü", "nested": {"list": [1, 2.5, None]}} for n in range(50)
    ]
    with Journal(tmp_path) as journal:
        journal.append(records[0])
        journal.append_many(records[1:30])
        journal.append_many([])
        assert list(journal.read()[1]) == records[:30]
        for record in records[30:]:
            journal.append(record)
        assert journal.records == 50
    assert content(tmp_path) == (None, records)


def test_the_loss_of_a_training_that_diverged_can_be_written(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append({"loss": math.nan, "best": math.inf})
    ((record,)) = content(tmp_path)[1]
    assert math.isnan(record["loss"])
    assert record["best"] == math.inf


def test_a_snapshot_replaces_what_was_before(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append_many({"n": n} for n in range(1000))
        before = journal.size
        journal.compact({"sum": 499_500})
        assert journal.size < before
        assert journal.records == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "journal-000002.log",
            "journal.end",
            "journal.lock",
        ]
        journal.append({"n": 1000})
    assert content(tmp_path) == ({"sum": 499_500}, [{"n": 1000}])


def test_the_present_size_is_that_of_the_file(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append({"n": 1})
        assert journal.size == (tmp_path / "journal-000001.log").stat().st_size


def test_appended_record_is_in_file_before_append_returns(tmp_path: Path) -> None:
    with Journal(tmp_path, fsync_seconds=None) as journal:
        journal.append({"n": 1})
        assert list(read_folder(tmp_path)[1]) == [{"n": 1}]
        journal.append_many([{"n": 2}, {"n": 3}])
        assert list(read_folder(tmp_path)[1]) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_reading_is_not_disturbed_by_later_records(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append({"n": 1})
        _, records = journal.read()
        journal.append({"n": 2})
        assert list(records) == [{"n": 1}]


def test_a_folder_without_a_journal_reads_as_empty(tmp_path: Path) -> None:
    snapshot, records = read_folder(tmp_path)
    assert (snapshot, list(records)) == (None, [])
    assert list(tmp_path.iterdir()) == []


def test_lines_are_plain_json_after_their_checksum(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append({"do": "lease"})
    header, line = (tmp_path / "journal-000001.log").read_text().splitlines()
    assert json.loads(header[9:]) == {"format": 2, "snapshot": None}
    assert line[9:] == '{"do":"lease"}'


def test_there_is_one_writer(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        with pytest.raises(JournalError, match=f"Another master is writing the journal in {tmp_path}"):
            Journal(tmp_path)
        journal.append({"n": 1})
    Journal(tmp_path).close()


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append({"n": 1})


def test_a_journal_of_another_format_is_not_guessed_at(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append({"n": 1})
    # A line of ours, in a place where only a header may stand.
    line = b'%08x {"n":1}\n' % zlib.crc32(b'{"n":1}')
    (tmp_path / "journal-000001.log").write_bytes(line)
    with (
        Journal(tmp_path) as journal,
        pytest.raises(JournalError, match="no journal that this version can read"),
    ):
        journal.read()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=f"journal in {tmp_path}/file/journal cannot be written: Not a directory"
    ):
        Journal(tmp_path / "file" / "journal")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what is really synced: that it was cannot be seen from outside without cutting the power."""
    found: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        found.append(file)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


@pytest.mark.parametrize(("seconds", "expected"), [(10.0, 3), (0.0, 30), (None, 0)])
def test_syncs_come_by_the_clock(
    tmp_path: Path, syncs: list[int], seconds: float | None, expected: int
) -> None:
    clock = Clock()
    with Journal(tmp_path, fsync_seconds=seconds, clock=clock) as journal:
        syncs.clear()
        for n in range(30):
            clock.now += 1.0
            journal.append({"n": n})
        assert len(syncs) == expected
        syncs.clear()
    assert len(syncs) == 1


def test_a_snapshot_is_synced_with_its_folder(tmp_path: Path, syncs: list[int]) -> None:
    with Journal(tmp_path, fsync_seconds=None) as journal:
        syncs.clear()
        journal.compact({})
        assert len(syncs) == 2
