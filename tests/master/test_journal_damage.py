"""A torn last line is cut off and counted; damage anywhere else is an error with file and line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elasticdl.master.journal import Journal, JournalError, read_folder

RECORDS = [{"n": n, "text": "x" * n} for n in range(4)]


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    """The header and four records, in a file that is given as `tmp_path / "whole"`."""
    with Journal(tmp_path / "whole") as journal:
        journal.compact({"state": 7})
        journal.append_many(RECORDS)
    return (tmp_path / "whole" / "journal-000002.log").read_bytes().splitlines(keepends=True)


def with_bytes(folder: Path, data: bytes) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "journal-000002.log").write_bytes(data)
    return folder


def test_torn_at_every_byte(tmp_path: Path, lines: list[bytes]) -> None:
    whole = b"".join(lines)
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    for cut in range(ends[0], len(whole) + 1):
        folder = with_bytes(tmp_path / "torn", whole[:cut])
        intact = sum(end <= cut for end in ends) - 1
        assert list(read_folder(folder)[1]) == RECORDS[:intact]
        with Journal(folder, fsync_seconds=None) as journal:
            assert journal.dropped_bytes == cut - ends[intact]
            snapshot, records = journal.read()
            assert snapshot == {"state": 7}
            assert list(records) == RECORDS[:intact]
            journal.append({"after": cut})
            assert list(journal.read()[1]) == [*RECORDS[:intact], {"after": cut}]
        with Journal(folder) as journal:
            assert journal.dropped_bytes == 0
            assert list(journal.read()[1]) == [*RECORDS[:intact], {"after": cut}]


def test_a_torn_header_is_an_error(tmp_path: Path, lines: list[bytes]) -> None:
    # It was complete before its file got the name; without it everything would be forgotten.
    for cut in range(len(lines[0])):
        folder = with_bytes(tmp_path / "torn", lines[0][:cut])
        with pytest.raises(JournalError, match=r"journal-000002.log is damaged at line 1"):
            Journal(folder)
        with pytest.raises(JournalError, match="line 1"):
            read_folder(folder)


def test_a_changed_byte_anywhere_but_in_the_last_line_is_an_error(tmp_path: Path, lines: list[bytes]) -> None:
    whole = b"".join(lines)
    # The line break before the last line is left out: without it there is one long last line.
    for at in range(len(whole) - len(lines[-1]) - 1):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        line = whole[:at].count(b"\n") + 1
        folder = with_bytes(tmp_path / "changed", bytes(changed))
        with pytest.raises(JournalError, match=rf"{folder}/journal-000002.log is damaged at line {line}"):
            Journal(folder)
        assert (folder / "journal-000002.log").read_bytes() == changed


def test_a_changed_last_line_is_dropped_and_counted(tmp_path: Path, lines: list[bytes]) -> None:
    whole = b"".join(lines)
    for at in range(len(whole) - len(lines[-1]), len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        with Journal(with_bytes(tmp_path / "changed", bytes(changed)), fsync_seconds=None) as journal:
            assert list(journal.read()[1]) == RECORDS[:-1]
            assert journal.dropped_bytes == len(lines[-1])


def test_zeros_at_the_end_are_dropped(tmp_path: Path, lines: list[bytes]) -> None:
    # What some file systems leave after a loss of power.
    with Journal(with_bytes(tmp_path / "zeros", b"".join(lines) + b"\0" * 4096)) as journal:
        assert list(journal.read()[1]) == RECORDS
        assert journal.dropped_bytes == 4096


def test_a_missing_line_end_between_two_bad_lines_is_an_error(tmp_path: Path, lines: list[bytes]) -> None:
    with pytest.raises(JournalError, match="line 4"):
        Journal(with_bytes(tmp_path / "two", b"".join(lines[:3]) + b"bad\n" + b"worse\n"))


def test_after_an_error_the_journal_is_not_locked(tmp_path: Path, lines: list[bytes]) -> None:
    folder = with_bytes(tmp_path / "bad", b"bad\n" + b"".join(lines))
    for _ in range(2):
        with pytest.raises(JournalError, match="line 1"):
            Journal(folder)
    (folder / "journal-000002.log").write_bytes(b"".join(lines))
    Journal(folder).close()
