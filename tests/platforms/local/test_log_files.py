"""A log's file is turned over between lines, and can be read on across the turn."""

from __future__ import annotations

from pathlib import Path

from elasticdl.platforms.local.log_files import LogReader, LogWriter, tail


def test_the_newest_is_kept_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    writer = LogWriter(path, limit=1000)
    lines = [f"line {number}" for number in range(1000)]
    for line in lines:
        writer.write(line[:3].encode())
        writer.write(line[3:].encode() + b"\n")
    writer.close()
    kept = ((tmp_path / "worker-0.log.1").read_text() + path.read_text()).splitlines()
    assert lines[-len(kept) :] == kept
    assert 1000 <= sum(len(line) + 1 for line in kept) <= 2200


def test_output_without_lines_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    writer = LogWriter(path, limit=1000)
    for _ in range(1000):
        writer.write(b"0123456789")
    writer.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2 * 2 * 1000 + 100
    assert path.read_bytes().endswith(b"0123456789") or path.read_bytes() == b""


def test_tail_reaches_back_into_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    writer = LogWriter(path, limit=100)
    for number in range(21):
        writer.write(f"line {number:4}\n".encode())
    writer.close()
    assert tail(path, 12) == [f"line {number:4}" for number in range(9, 21)]


def test_tail_of_nothing(tmp_path: Path) -> None:
    assert tail(tmp_path / "worker-0.log", 5) == []
    (tmp_path / "worker-0.log").touch()
    assert tail(tmp_path / "worker-0.log", 5) == []


def test_a_reader_loses_nothing_when_a_log_is_turned_over(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    reader = LogReader(path)
    assert reader.read() == b""
    writer = LogWriter(path, limit=100)
    written = heard = b""
    for number in range(500):
        line = f"line {number}\n".encode()
        writer.write(line)
        written += line
        if number % 3 == 0:
            heard += reader.read()
    while more := reader.read():
        heard += more
    writer.close()
    reader.close()
    assert heard == written


def test_a_reader_that_was_away_goes_on_with_the_oldest_there_is(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    writer = LogWriter(path, limit=100)
    writer.write(b"begin\n")
    reader = LogReader(path)
    assert reader.read() == b"begin\n"
    for number in range(100):
        writer.write(f"line {number:4}\n".encode())
    heard = b""
    while more := reader.read():
        heard += more
    assert heard.endswith(b"line   99\n")
    lines = heard[heard.index(b"line    ") :].splitlines()[-10:]
    assert lines == [f"line {number:4}".encode() for number in range(90, 100)]
    writer.close()
    reader.close()


def test_reader_from_the_end_gets_new_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"old\n")
    reader = LogReader(path, from_end=True)
    with path.open("ab") as file:
        file.write(b"new\n")
    assert reader.read() == b"new\n"
    reader.close()
