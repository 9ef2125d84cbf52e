"""The part of a table in one file: blocks of buckets.

In a file (`array_file.py`) a table is a group `table:NAME`, whose arrays belong to blocks: some buckets, one behind the
other, until there are some megabytes.

    BLOCK/buckets     their numbers
    BLOCK/starts      which rows of the block are whose; one number more than there are buckets
    BLOCK/complete    of each bucket: all rows (1), or those that may have changed since an earlier checkpoint (0)
    BLOCK/ids, values, slots, steps, seen       of each row; the last two if the table has them
    BLOCK/waiting_starts, waiting_ids, waiting_counts, waiting_seen     ids that wait for a row, always all
    BLOCK/forgotten_starts, forgotten   ids whose rows were removed since then, before those in the block came
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFile
from elasticdl.ps.checkpoint.resharding import TABLE_PREFIX
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import TableRows

ROW_ARRAYS = ("ids", "values", "slots", "steps", "seen")
WAITING_ARRAYS = ("waiting_ids", "waiting_counts", "waiting_seen")
ALL_ARRAYS = (*ROW_ARRAYS, *WAITING_ARRAYS, "forgotten")
# In memory, arrays begin at multiples of it.
_ALIGNED = 64


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The place of a bucket: a block of a file, and its rows."""

    block: str
    rows: slice
    waiting: slice
    forgotten: slice
    complete: bool

    def of(self, kind: str) -> slice:
        if kind == "forgotten":
            return self.forgotten
        return self.waiting if kind in WAITING_ARRAYS else self.rows


class Scratch:
    """Memory for a block at a time: fresh memory for each would take longer than reading it."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, sizes: Sequence[int]) -> list[NDArray[np.uint8]]:
        """A piece for each size. Those given before are taken back."""
        ends = np.cumsum([-(-size // _ALIGNED) * _ALIGNED for size in sizes])
        if len(sizes) and len(self._memory) < ends[-1]:
            self._memory = np.empty(int(ends[-1]), np.uint8)
        starts = [0, *ends[:-1].tolist()]
        return [self._memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]


class TableInFile:
    """The part of a table in one file."""

    def __init__(self, file: ArrayFile, *, name: str, width: int, slots: int, buckets: int) -> None:
        self._file = file
        self._name, self._width, self._slots, self._buckets = name, width, slots, buckets
        self._group = f"{TABLE_PREFIX}{name}"
        self._entries = file.entries.get(self._group, {})
        self.places: dict[int, _Place] = {}
        # Large buckets have a block to themselves.
        self._alone: set[str] = set()
        # The last block that each thread has read: buckets are asked for in their order.
        self._last = threading.local()
        for key in self._entries:
            block, _, kind = key.partition("/")
            if kind == "buckets":
                self._find_buckets(block)

    def _find_buckets(self, block: str) -> None:
        try:
            buckets, starts, complete = (
                self._read(f"{block}/{kind}") for kind in ("buckets", "starts", "complete")
            )
            nothing = np.zeros(len(buckets) + 1, np.int64)
            waiting, forgotten = (
                self._read(f"{block}/{kind}") if f"{block}/{kind}" in self._entries else nothing
                for kind in ("waiting_starts", "forgotten_starts")
            )
            if not len(starts) == len(waiting) == len(forgotten) == len(buckets) + 1 == len(complete) + 1:
                raise ValueError(f"block {block} has {len(buckets)} buckets and {len(starts)} starts")
            self._check_shapes(block, int(starts[-1]))
            if len(buckets) == 1:
                self._alone.add(block)
            for number, bucket in enumerate(buckets.tolist()):
                if bucket >= self._buckets or bucket in self.places:
                    raise ValueError(f"bucket {bucket} is one too many")
                self.places[bucket] = _Place(
                    block=block,
                    rows=slice(int(starts[number]), int(starts[number + 1])),
                    waiting=slice(int(waiting[number]), int(waiting[number + 1])),
                    forgotten=slice(int(forgotten[number]), int(forgotten[number + 1])),
                    complete=bool(complete[number]),
                )
        except (KeyError, ValueError) as error:
            raise self._damaged(str(error)) from error

    def _check_shapes(self, block: str, rows: int) -> None:
        width, slots = self._width, self._slots
        expected = {"ids": (rows,), "values": (rows, width), "slots": (rows, slots, width)}
        for name, shape in expected.items():
            found = self._entries[f"{block}/{name}"].shape
            if found != shape:
                raise ValueError(f"{block}/{name} has shape {list(found)} and not {list(shape)}")

    def read(self, bucket: int, scratch: Scratch | None = None) -> TableRows:
        """Reads a bucket. With `scratch`, the result is valid until that is used again."""
        place = self.places[bucket]
        if scratch is not None and place.block in self._alone:
            keys = self._keys(place.block)
            memory = scratch.take([self._entries[key].bytes for key in keys.values()])
            found = {
                kind: self._file.read(self._group, key, piece)
                for (kind, key), piece in zip(keys.items(), memory, strict=True)
            }
        else:
            found = self._read_block(place.block)
        arrays = {kind: array[place.of(kind)] for kind, array in found.items()}
        return TableRows(**arrays, complete=place.complete)

    def _keys(self, block: str) -> dict[str, str]:
        """The names of a block's arrays, by what they are."""
        return {kind: f"{block}/{kind}" for kind in ALL_ARRAYS if f"{block}/{kind}" in self._entries}

    def read_ids(self, bucket: int) -> tuple[Array, Array]:
        """Reads the ids that have rows here, and those whose rows were removed before. Reads nothing else of the
        bucket.
        """
        place = self.places[bucket]
        key = f"{place.block}/forgotten"
        forgotten = self._read(key) if key in self._entries else np.empty(0, np.int64)
        return self._read(f"{place.block}/ids")[place.rows], forgotten[place.forgotten]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self._entries.values())

    def _read_block(self, block: str) -> dict[str, Array]:
        last: tuple[str, dict[str, Array]] = getattr(self._last, "block", ("", {}))
        if last[0] != block:
            # Not two of them at once.
            self._last.block = last = ("", {})
            found = {kind: self._read(key) for kind, key in self._keys(block).items()}
            self._last.block = last = (block, found)
        return last[1]

    def _read(self, name: str) -> Array:
        return self._file.read(self._group, name)

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self._file.path} is damaged: the table {self._name} makes no sense ({what}).",
            hint="Restore the file, or start from an older checkpoint.",
        )
