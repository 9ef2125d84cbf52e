"""The index of a file is built once, kept beside the data or in the cache folder, and never believed blindly."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.files.record_index import FileIndex, beside_data, in_cache
from elasticdl.data.formats import recordio

RECORDS = [str(number).encode() for number in range(50)]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths for which an index was built."""
    built = []
    scan = recordio.scan

    def noted(file: int, size: int, path: Path) -> FileIndex:
        built.append(path)
        return scan(file, size, path)

    monkeypatch.setattr(recordio, "scan", noted)
    return built


@pytest.fixture
def file(tmp_path: Path, write_recordio: Callable[..., Path]) -> Path:
    return write_recordio(tmp_path / "x.recordio", RECORDS, max_chunk_records=3)


def contents(path: Path) -> list[bytes]:
    reader = open_reader(str(path))
    return list(reader.read(0, len(reader)))


def test_index_is_built_once(file: Path, builds: list[Path]) -> None:
    assert contents(file) == RECORDS
    assert contents(file) == RECORDS
    assert builds == [file]
    assert (file.parent / ".x.recordio.elasticdl-index").exists()


def test_index_file_is_not_read_as_data(file: Path) -> None:
    contents(file)
    assert contents(file.parent) == RECORDS


def test_another_file_of_the_same_name_gets_another(
    file: Path, builds: list[Path], write_recordio: Callable[..., Path]
) -> None:
    contents(file)
    write_recordio(file, RECORDS * 2, max_chunk_records=3)
    assert contents(file) == RECORDS * 2
    assert builds == [file, file]


def test_a_change_of_time_is_enough(file: Path, builds: list[Path]) -> None:
    contents(file)
    os.utime(file, ns=(1, 1))
    contents(file)
    assert builds == [file, file]


@pytest.mark.parametrize("size", [0, 3, 30, 100])
def test_truncated_index_is_rebuilt(file: Path, builds: list[Path], size: int) -> None:
    contents(file)
    index = beside_data(file)
    index.write_bytes(index.read_bytes()[:size])
    assert contents(file) == RECORDS
    assert builds == [file, file]
    assert contents(file) == RECORDS
    assert builds == [file, file]


def test_one_that_is_damaged_anywhere_is_built_again(file: Path, damage: Callable[..., Path]) -> None:
    contents(file)
    index = beside_data(file)
    for offset in range(index.stat().st_size):
        damage(index, offset)
        assert contents(file) == RECORDS


def test_other_settings_have_another_index(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,"2\n3"\n')
    assert len(open_reader(str(path))) == 1
    assert len(open_reader(str(path), {"header": "false"})) == 2
    assert len(open_reader(str(path), {"quote": "none", "ragged": "true"})) == 2


def test_a_name_too_long_for_a_file_beside_it(
    tmp_path: Path, builds: list[Path], write_recordio: Callable[..., Path]
) -> None:
    path = tmp_path / ("x" * 240 + ".recordio")
    # Written under a shorter name, because the temporary name of the writer would do.
    write_recordio(tmp_path / "short.recordio", RECORDS).rename(path)
    assert contents(path) == RECORDS
    assert in_cache(path).exists()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert contents(path) == RECORDS
    assert builds == [path]


def test_memory_is_small_for_many_records(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"1,2\n" * 2_000_000)
    reader = open_reader(str(path))
    assert len(reader) == 2_000_000
    assert list(reader.read(1_999_999, 2_000_000)) == [["1", "2"]]
    # 16 bytes a mark; 10⁸ such records would take 6 MB.
    assert beside_data(path).stat().st_size < 2_000_000 / 256 * 16 + 1000
