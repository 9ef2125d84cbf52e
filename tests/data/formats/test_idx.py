"""idx files with impossible shapes are errors with the name of the file."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from elasticdl.data.formats.idx import IdxFile
from elasticdl.errors import UserError

UINT8, FLOAT64 = 0x08, 0x0E


def write(path: Path, kind: int, *shape: int, content: bytes = bytes(64)) -> Path:
    data = struct.pack(f">4B{len(shape)}I", 0, 0, kind, len(shape), *shape) + content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["images", "images.gz"])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (UINT8, (4, 0, 28)),
        (UINT8, (4, 2**32 - 1, 2**32 - 1)),
        (FLOAT64, (1, *[2**32 - 1] * 7)),
        (FLOAT64, (2, 2**31)),
    ],
)
def test_impossible_shape_is_reported(tmp_path: Path, name: str, kind: int, shape: tuple[int, ...]) -> None:
    path = write(tmp_path / name, kind, *shape)
    with pytest.raises(UserError, match="is not an idx file"):
        list(IdxFile(path).read(0, 1))


def test_number_of_items_may_be_zero(tmp_path: Path) -> None:
    assert len(IdxFile(write(tmp_path / "images", UINT8, 0, 4, 4))) == 0
