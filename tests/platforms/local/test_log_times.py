"""The file of times beside a log: when each second of output was written, across turn-overs and without it."""

from __future__ import annotations

from pathlib import Path

from elasticdl.platforms.local.log_files import LogReader, LogWriter
from tests.master.fake_time import Clock


def timed(reader: LogReader) -> list[tuple[float | None, bytes]]:
    found = []
    while pieces := reader.read_timed():
        found += pieces
    return found


def test_output_is_cut_where_another_second_begins(tmp_path: Path) -> None:
    clock = Clock()
    writer = LogWriter(tmp_path / "worker-0.log", clock=clock)
    writer.write(b"one\n")
    clock.now += 0.2
    writer.write(b"two\n")
    clock.now += 5
    writer.write(b"three\n")
    assert timed(LogReader(tmp_path / "worker-0.log")) == [(1000.0, b"one\ntwo\n"), (1005.2, b"three\n")]


def test_reader_of_a_growing_log_gets_the_times_of_what_is_new(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "worker-0.log"
    reader = LogReader(path)
    assert timed(reader) == []
    writer = LogWriter(path, clock=clock)
    writer.write(b"one\n")
    assert timed(reader) == [(1000.0, b"one\n")]
    clock.now += 0.5
    writer.write(b"two\n")
    assert timed(reader) == [(1000.0, b"two\n")]
    clock.now += 2
    writer.write(b"three\n")
    assert timed(reader) == [(1002.5, b"three\n")]


def test_times_are_turned_over_with_the_log(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "worker-0.log"
    early = LogReader(path)
    writer = LogWriter(path, limit=20, clock=clock)
    lines = [f"line {number:03d}\n".encode() for number in range(7)]
    for line in lines:
        writer.write(line)
        clock.now += 10
    # The third line of a file is too much for it; what was before the older file is dropped.
    found = timed(LogReader(path))
    assert [line for _, line in found] == lines[3:]
    assert [moment for moment, _ in found] == [1030.0, 1040.0, 1050.0, 1060.0]
    assert timed(early)[-1] == (1060.0, lines[-1])


def test_log_without_times_is_read_without_them(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"of an earlier version\n")
    assert timed(LogReader(path)) == [(None, b"of an earlier version\n")]
    LogWriter(path, clock=Clock()).write(b"new\n")
    assert timed(LogReader(path)) == [(None, b"of an earlier version\n"), (1000.0, b"new\n")]


def test_times_that_cannot_be_written_lose_no_output(tmp_path: Path) -> None:
    (tmp_path / ".worker-0.log.times").mkdir()
    writer = LogWriter(tmp_path / "worker-0.log", clock=Clock())
    writer.write(b"one\n")
    assert (tmp_path / "worker-0.log").read_bytes() == b"one\n"
    assert writer.trouble == ""
