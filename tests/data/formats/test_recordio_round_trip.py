"""Whatever is written comes back, from any range of indices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.binary(max_size=300), min_size=1, max_size=60),
    compressor=st.sampled_from(["none", "snappy", "gzip"]),
    chunk_records=st.integers(1, 20),
    chunk_bytes=st.integers(1, 2000),
    data=st.data(),
)
def test_any_range_of_any_records(
    fresh: Callable[[str], Path],
    write_recordio: Callable[..., Path],
    records: list[bytes],
    compressor: str,
    chunk_records: int,
    chunk_bytes: int,
    data: st.DataObject,
) -> None:
    path = write_recordio(
        fresh("x.recordio"),
        records,
        compressor=compressor,
        max_chunk_records=chunk_records,
        max_chunk_bytes=chunk_bytes,
    )
    reader = open_reader(str(path))
    assert len(reader) == len(records)
    start = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    assert list(reader.read(start, end)) == records[start:end]


def test_more_chunks_than_marks(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [str(number).encode() for number in range(3000)]
    write_recordio(tmp_path / "x.recordio", records, max_chunk_records=1)
    reader = open_reader(str(tmp_path))
    for start in (0, 1, 255, 256, 257, 1000, 2999):
        assert list(reader.read(start, 3000)) == records[start:]


def test_shards_smaller_than_a_chunk(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [str(number).encode() * 10 for number in range(5000)]
    write_recordio(tmp_path / "x.recordio", records, max_chunk_records=10_000, max_chunk_bytes=1 << 30)
    reader = open_reader(str(tmp_path))
    for start in range(0, 5000, 500):
        assert list(reader.read(start, start + 500)) == records[start : start + 500]
