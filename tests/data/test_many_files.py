"""Many files are one run of sample indices, read by several threads and processes without holding files open."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader
from elasticdl.data.reader import BadRecords


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=8).filter(any), data=st.data())
def test_any_range_over_any_files(
    fresh: Callable[[str], Path], write_recordio: Callable[..., Path], sizes: list[int], data: st.DataObject
) -> None:
    folder = fresh("x").parent
    expected = []
    for number, size in enumerate(sizes):
        records = [b"%d:%d" % (number, index) for index in range(size)]
        write_recordio(folder / f"{number}.recordio", records, max_chunk_records=3)
        expected += records
    reader = open_reader(str(folder))
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    assert len(reader) == len(expected)
    assert list(reader.read(start, end)) == expected[start:end]


@pytest.fixture
def many(tmp_path: Path, write_recordio: Callable[..., Path]) -> Path:
    for number in range(300):
        write_recordio(
            tmp_path / f"{number:03d}.recordio", [b"%d" % (number * 10 + index) for index in range(10)]
        )
    return tmp_path


def test_damage_has_the_indices_of_the_data_set(many: Path, damage: Callable[..., Path]) -> None:
    path = many / "002.recordio"
    damage(path, 25)
    with pytest.raises(BadRecords) as error:
        list(open_reader(str(many)).read(15, 100))
    bad = error.value.bad
    assert (bad.start, bad.end, bad.where) == (20, 30, f"{path}, byte 0")


def open_files(folder: Path) -> int:
    """Files of the folder that this process has open. Threads of earlier tests open and close others."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += descriptor.readlink().is_relative_to(folder)
    return count


def test_few_files_are_open_at_a_time(many: Path) -> None:
    reader = open_reader(str(many))
    most = 0
    for record in reader.read(0, len(reader)):
        if int(record) % 100 == 0:
            most = max(most, open_files(many))
    assert 1 <= most <= 2
    assert open_files(many) == 0


def test_closed_iterator_closes_its_file(many: Path) -> None:
    iterator = open_reader(str(many)).read(0, 100)
    assert isinstance(iterator, Generator)
    next(iterator)
    assert open_files(many) == 1
    iterator.close()
    assert open_files(many) == 0


def test_threads_read_the_same_reader_at_once(many: Path) -> None:
    reader = open_reader(str(many))
    wrong = []

    def read(offset: int) -> None:
        for start in range(offset, 2900, 97):
            found = [int(record) for record in reader.read(start, start + 100)]
            if found != list(range(start, start + 100)):
                wrong.append((start, found))

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_process_goes_on_where_its_parent_goes_on_too(many: Path) -> None:
    reader = open_reader(str(many))
    iterator = reader.read(0, len(reader))
    first = [next(iterator) for _ in range(55)]
    child = os.fork()
    if child == 0:
        os._exit(0 if [int(record) for record in iterator] == list(range(55, 3000)) else 1)
    rest = list(iterator)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert [int(record) for record in first + rest] == list(range(3000))
