"""The idx files that MNIST and its relatives are published as: one array of images, one of labels.

An idx file is two zero bytes, a byte for the type of its numbers, a byte for the number of dimensions, each
dimension as a big-endian uint32, and the numbers. Images are read with the labels file beside them
(`train-images-idx3-ubyte` with `train-labels-idx1-ubyte`, compressed or not); a record is a dict with
`image`, an array, and `label`, an int, -1 where there is no such file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.files.data_file import COMPRESSED_SUFFIXES, Source, open_source, read_at
from elasticdl.data.files.multi_file import Damaged, DataFile
from elasticdl.errors import UserError

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_READ_BYTES = 1 << 20
# The maximal size of a sample in a compressed file, whose own size says little.
_MOST_ITEM_BYTES = 1 << 26


def is_idx(head: bytes) -> bool:
    return len(head) >= 4 and head[:2] == b"\x00\x00" and head[2] in _DTYPES and 1 <= head[3] <= 8


@dataclass(frozen=True, kw_only=True)
class IdxArray:
    """An idx file: the place of its numbers, and their type and shape."""

    source: Source
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def item_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def items(self, file: int, start: int, end: int) -> Any:
        """The items [start, end), fewer where the file was cut short."""
        size = self.item_bytes
        data = read_at(file, (end - start) * size, self.offset + start * size)
        count = len(data) // size
        array = np.frombuffer(data, self.dtype, count * size // self.dtype.itemsize)
        return array.reshape((count, *self.shape[1:])).astype(self.dtype.newbyteorder("="))


def open_idx(path: Path) -> IdxArray:
    source = open_source(path)
    with source.open() as file:
        head = read_at(file, 4 + 4 * 8, 0)
    if not is_idx(head) or len(head) < 4 + 4 * head[3]:
        raise UserError(f"{path} is not an idx file: it does not begin with a type and a shape.")
    shape = tuple(int.from_bytes(head[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(head[3]))
    array = IdxArray(source=source, shape=shape, dtype=np.dtype(_DTYPES[head[2]]), offset=4 + 4 * len(shape))
    sizes = " × ".join(str(axis) for axis in shape)
    if 0 in shape[1:]:
        raise UserError(f"{path} is not an idx file with samples: its shape is {sizes}.")
    # Whole numbers of Python: the product may exceed 64 bits.
    if math.prod(shape[1:]) * array.dtype.itemsize > max(source.size, _MOST_ITEM_BYTES):
        raise UserError(
            f"{path} is not an idx file, or damaged: its shape is {sizes}, which is more than the file has."
        )
    return array


def labels_beside(images: Path) -> Path | None:
    """The labels file that belongs to an images file, if it is there."""
    name = images.name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    if "images" not in name:
        return None
    stem = name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    candidates = (images.with_name(stem + suffix) for suffix in ("", *COMPRESSED_SUFFIXES))
    return next((candidate for candidate in candidates if candidate.exists()), None)


class IdxFile(DataFile):
    """The images of one idx file, with their labels."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._images = open_idx(path)
        labels = labels_beside(path)
        self._labels = open_idx(labels) if labels is not None else None
        if self._labels is not None and self._labels.shape[:1] != self._images.shape[:1]:
            raise UserError(
                f"{path} has {self._images.shape[0]} images, but {labels} has {self._labels.shape[0]} labels."
            )

    def __len__(self) -> int:
        return self._images.shape[0]

    @property
    def dtype(self) -> str:
        return self._images.dtype.newbyteorder("=").name

    def read(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        step = max(1, _READ_BYTES // max(1, self._images.item_bytes))
        for begin in range(start, end, step):
            stop = min(end, begin + step)
            images = self._items(self._images, begin, stop)
            labels = self._items(self._labels, begin, stop) if self._labels else np.full(stop - begin, -1)
            for number in range(stop - begin):
                if number >= min(len(images), len(labels)):
                    cut = self._images if number >= len(images) else self._labels
                    raise self._cut_short(cut or self._images, begin + number)
                yield {"image": images[number], "label": int(labels[number])}

    def _items(self, array: IdxArray, start: int, end: int) -> Any:
        with array.source.open() as file:
            return array.items(file, start, end)

    def _cut_short(self, array: IdxArray, sample: int) -> Damaged:
        where = array.source.where(array.offset + sample * array.item_bytes)
        return Damaged(start=sample, end=len(self), where=where, reason="the file ends before this sample")
