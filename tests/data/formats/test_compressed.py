"""Compressed files are read like others: by index, from one decompressed copy in the cache folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.tfrecord_frames import frame
from tests.data.conftest import ReadThrough

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(cramjam.zstd.compress(data)),
}
RECORDS = [b"record %d" % number for number in range(1000)]


def copies(cache: Path) -> set[Path]:
    return {path for path in (cache / "plain").glob("*") if not path.name.endswith(".lock")}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("format", ["csv", "tfrecord", "recordio"])
def test_every_format_is_read_with_every_compression(
    tmp_path: Path,
    write_recordio: Callable[..., Path],
    suffix: str,
    format: str,  # noqa: A002
) -> None:
    if format == "recordio":
        plain = write_recordio(tmp_path / "plain", RECORDS).read_bytes()
    elif format == "tfrecord":
        plain = b"".join(map(frame, RECORDS))
    else:
        plain = b"".join(b"%d,x\n" % number for number in range(1000))
    path = tmp_path / "packed" / f"x.{format}{suffix}"
    path.parent.mkdir()
    path.write_bytes(COMPRESSIONS[suffix](plain))
    reader = open_reader(str(path.parent))
    found = list(reader.read(500, 600))
    expected = [[str(number), "x"] for number in range(500, 600)] if format == "csv" else RECORDS[500:600]
    assert found == expected
    assert len(reader) == 1000


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed_file_without_suffix_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(COMPRESSIONS[suffix](b"".join(map(frame, RECORDS))))
    assert list(open_reader(str(path)).read(10, 12)) == RECORDS[10:12]


def test_compressed_file_is_decompressed_once(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    before = copies(cache)
    for _ in range(2):
        assert len(open_reader(str(path))) == 2
    (copy,) = copies(cache) - before
    assert copy.read_bytes() == b"1,2\n3,4\n"


def test_the_copy_of_a_file_that_has_changed_is_replaced(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    before = copies(cache)
    open_reader(str(path))
    path.write_bytes(gzip.compress(b"5,6\n" * 3))
    assert list(open_reader(str(path)).read(0, 3)) == [["5", "6"]] * 3
    assert len(copies(cache) - before) == 1


def test_a_cache_folder_cleaned_meanwhile(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    before = copies(cache)
    reader = open_reader(str(path))
    for copy in copies(cache) - before:
        copy.unlink()
    assert list(reader.read(0, 2)) == [["1", "2"], ["3", "4"]]


def test_damage_is_named_by_the_place_after_decompression(tmp_path: Path, read_through: ReadThrough) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3\n5,6\n"))
    _, (bad,) = read_through(path)
    assert bad.where == f"{path}, byte 4 after decompression"


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_truncated_compressed_file_is_refused(
    tmp_path: Path, refused: Callable[..., str], suffix: str, cache: Path
) -> None:
    path = tmp_path / f"x.csv{suffix}"
    content = COMPRESSIONS[suffix](b"".join(b"%d,x\n" % number for number in range(1000)))
    path.write_bytes(content[: len(content) // 2])
    before = copies(cache)
    message = refused(path)
    assert str(path) in message
    assert "cannot be decompressed" in message
    assert "cut short" in message
    assert copies(cache) == before


def test_a_damaged_file(tmp_path: Path, refused: Callable[..., str], damage: Callable[..., Path]) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d,x\n" % number for number in range(1000))))
    damage(path, path.stat().st_size // 2)
    assert "cannot be decompressed" in refused(path)
