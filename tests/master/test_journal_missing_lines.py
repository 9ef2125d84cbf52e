"""Complete lines, or the whole file, are missing in a journal: no kill does that, and it is found when it is opened."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from elasticdl.master.journal import Journal, JournalError

FILE = "journal-000001.log"


def write(folder: Path, records: int) -> list[bytes]:
    """Returns the lines of the file."""
    with Journal(folder) as journal:
        journal.append_many({"n": n} for n in range(records))
    return (folder / FILE).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("missing", [1, 5, 10])
def test_lines_missing_at_the_end_are_noticed(tmp_path: Path, missing: int) -> None:
    lines = write(tmp_path, 10)
    (tmp_path / FILE).write_bytes(b"".join(lines[:-missing]))
    with Journal(tmp_path) as journal:
        assert journal.has_lost_end
        assert list(journal.read()[1]) == [{"n": n} for n in range(10 - missing)]
        journal.append({"after": True})
    with Journal(tmp_path) as journal:
        assert not journal.has_lost_end
        assert journal.records == 11 - missing


def test_line_missing_before_the_last_one_is_an_end_that_is_lost(tmp_path: Path) -> None:
    lines = write(tmp_path, 10)
    (tmp_path / FILE).write_bytes(b"".join([*lines[:-2], lines[-1]]))
    with Journal(tmp_path) as journal:
        assert journal.has_lost_end
        assert journal.records == 8


@pytest.mark.parametrize("missing", [1, 5, 8])
def test_lines_missing_before_others_are_damage(tmp_path: Path, missing: int) -> None:
    lines = write(tmp_path, 10)
    (tmp_path / FILE).write_bytes(b"".join([*lines[:missing], *lines[missing + 1 :]]))
    with pytest.raises(JournalError, match=f"damaged at line {missing + 1}, or lines before it are missing"):
        Journal(tmp_path)


def test_file_of_before_a_compaction_has_lost_its_end(tmp_path: Path) -> None:
    write(tmp_path, 10)
    before = (tmp_path / FILE).read_bytes()
    with Journal(tmp_path) as journal:
        journal.compact({"sum": 45})
    (tmp_path / "journal-000002.log").unlink()
    (tmp_path / FILE).write_bytes(before)
    with Journal(tmp_path) as journal:
        assert journal.has_lost_end


def test_missing_file_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 10)
    (tmp_path / FILE).unlink()
    with Journal(tmp_path) as journal:
        assert journal.is_lost
        assert journal.is_new


def test_nothing_is_missing_after_a_kill_before_the_end_was_noted(tmp_path: Path) -> None:
    write(tmp_path, 1)
    noted = (tmp_path / "journal.end").read_bytes()
    with Journal(tmp_path) as journal:
        journal.append({"n": 1})
    (tmp_path / "journal.end").write_bytes(noted)
    with Journal(tmp_path) as journal:
        assert not journal.has_lost_end
        assert journal.records == 2


def test_journal_of_unchained_lines_is_continued(tmp_path: Path) -> None:
    """As earlier versions wrote it."""
    texts = [b'{"format":1,"snapshot":null}', b'{"n":0}', b'{"n":1}']
    (tmp_path / FILE).write_bytes(b"".join(b"%08x %b\n" % (zlib.crc32(text), text) for text in texts))
    with Journal(tmp_path) as journal:
        assert not journal.has_lost_end
        journal.append_many([{"n": 2}, {"n": 3}])
        journal.append({"n": 4})
    with Journal(tmp_path) as journal:
        assert list(journal.read()[1]) == [{"n": n} for n in range(5)]
        journal.compact({"sum": 10})
        journal.append({"n": 5})
    with Journal(tmp_path) as journal:
        snapshot, records = journal.read()
        assert (snapshot, list(records)) == ({"sum": 10}, [{"n": 5}])
