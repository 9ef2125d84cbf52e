"""TFRecord files are laid out as TensorFlow writes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.tfrecord_frames import frame, masked_crc


def test_the_checksum_is_castagnoli_masked() -> None:
    # The check value of CRC-32C for "123456789" is 0xE3069283; rotated right by 15 and offset.
    assert (
        masked_crc(b"123456789")
        == ((0xE3069283 >> 15 | (0xE3069283 << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32
    )


def test_a_record_as_tensorflow_frames_it() -> None:
    # Written with tf.io.TFRecordWriter.
    written = bytes.fromhex("0500000000000000eab2043e68656c6c6fbb1f1c19")
    assert frame(b"hello") == written


def test_the_header_tells_the_length() -> None:
    assert struct.unpack_from("<Q", frame(b"x" * 1000)) == (1000,)
    assert len(frame(b"x" * 1000)) == 1016


@settings(max_examples=50, deadline=None)
@given(records=st.lists(st.binary(max_size=300), min_size=1, max_size=50), data=st.data())
def test_any_range_of_tfrecords_is_read(
    fresh: Callable[[str], Path],
    write_tfrecord: Callable[[Path, Iterable[bytes]], Path],
    records: list[bytes],
    data: st.DataObject,
) -> None:
    reader = open_reader(str(write_tfrecord(fresh("x.tfrecord"), records)))
    start = data.draw(st.integers(0, len(records)))
    end = data.draw(st.integers(start, len(records)))
    assert len(reader) == len(records)
    assert list(reader.read(start, end)) == records[start:end]


def test_records_larger_than_what_is_read_ahead(
    tmp_path: Path, write_tfrecord: Callable[[Path, Iterable[bytes]], Path]
) -> None:
    records = [bytes([number]) * size for number, size in enumerate((10, 3_000_000, 0, 1_500_000, 5))]
    reader = open_reader(str(write_tfrecord(tmp_path / "x.tfrecord", records)))
    assert list(reader.read(0, 5)) == records
    assert list(reader.read(3, 5)) == records[3:]


def test_more_records_than_marks(
    tmp_path: Path, write_tfrecord: Callable[[Path, Iterable[bytes]], Path]
) -> None:
    records = [str(number).encode() for number in range(3000)]
    write_tfrecord(tmp_path / "no-suffix", records)
    reader = open_reader(str(tmp_path))
    for start in (0, 255, 256, 257, 2999):
        assert list(reader.read(start, 3000)) == records[start:]
