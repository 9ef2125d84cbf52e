"""A file that is cut off, changed, foreign or of a later version is an error with its name and the cause."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ps-0-of-1.edl"
    chance = np.random.default_rng(5)
    write_array_file(
        path,
        NamedArrays(
            attributes={"version": 12},
            groups={
                "trainable": {"kernel": chance.normal(size=(20, 8)), "bias": chance.normal(size=8)},
                "state": {},
            },
        ),
    )
    return path


def test_any_changed_byte_is_found(file: Path) -> None:
    whole = file.read_bytes()
    chance = random.Random(17)
    # All of what is not an array, and some of what is.
    offsets = [*range(16), *chance.sample(range(16, len(whole)), 150), *range(len(whole) - 300, len(whole))]
    for offset in offsets:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"ps-0-of-1\.edl"):
            read_array_file(file)


def test_any_missing_end_is_found(file: Path) -> None:
    whole = file.read_bytes()
    for length in [*range(40), *range(40, len(whole), 13), *range(len(whole) - 40, len(whole))]:
        file.write_bytes(whole[:length])
        with pytest.raises(
            UserError, match=r"ps-0-of-1\.edl (is damaged: it is cut off|is not a file of parameters)"
        ):
            read_array_file(file)


def test_anything_appended_is_found(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(UserError, match="is damaged"):
        read_array_file(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a file of parameters: it is empty"),
        (b"PK\x03\x04" + bytes(100), "is not a file of parameters: it starts otherwise"),
        (b"{}", "is not a file of parameters"),
        (bytes(1000), "is not a file of parameters"),
    ],
)
def test_foreign_files_are_refused(file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_array_file(file)
    assert str(file) in error.value.message


def test_files_of_a_later_version_are_refused(file: Path) -> None:
    content = bytearray(file.read_bytes())
    struct.pack_into("<I", content, 8, 2)
    file.write_bytes(content)
    with pytest.raises(
        UserError, match="has format 2; this version of ElasticDL reads formats up to 1"
    ) as error:
        read_array_file(file)
    assert "later" in error.value.hint


def test_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.edl cannot be read: No such file"):
        read_array_file(tmp_path / "nothing.edl")
    with pytest.raises(UserError, match="cannot be read"):
        read_array_file(tmp_path)


def test_an_index_that_asks_for_more_than_there_is(file: Path, tmp_path: Path) -> None:
    """A crafted file, with right checksums, cannot make the reader allocate what it has not."""
    import json
    import zlib

    for arrays in (
        [["g", "a", "float64", [1 << 50], 16, 8 << 50, 0]],
        [["g", "a", "float64", [2], 16, 16, 0]],
        [["g", "a", "float64", [-1, -2], 16, 16, 0]],
        [["g", "a", "object", [2], 16, 16, 0]],
        [["g", "a", "float64", [0], 99, 0, 0]],
        [["g", "a", "float64", [0], 16, 0, 0], ["g", "a", "float64", [0], 16, 0, 0]],
        [["g", "a"]],
        {"g": 1},
    ):
        index = json.dumps({"attributes": {}, "arrays": arrays}).encode()
        header = struct.pack("<8sII", b"EDL-SNAP", 1, 0)
        trailer = struct.pack("<QQI4x8s", len(header), len(index), zlib.crc32(index), b"EDL-DONE")
        file.write_bytes(header + index + trailer)
        with pytest.raises(UserError, match="index makes no sense"):
            read_array_file(file)
