"""Tables in the files of checkpoints: written from frozen copies bucket by bucket, read for the buckets one wants.

In a file (`snapshot.py`) a table is a group `table:NAME`, whose arrays belong to blocks: some buckets, one behind the
other, until there are some megabytes.

    BLOCK/buckets     their numbers
    BLOCK/starts      which rows of the block are whose; one number more than there are buckets
    BLOCK/complete    of each bucket: all rows (1), or those that may have changed since an earlier checkpoint (0)
    BLOCK/ids, values, slots, steps, seen       of each row; the last two if the table has them
    BLOCK/waiting_starts, waiting_ids, waiting_counts, waiting_seen     ids that wait for a row, always all

What the table is stands in the file's attribute `tables`. A bucket is in one file of a checkpoint. What it holds is
found by going back through the chain of checkpoints to one where it is complete, and putting what changed on top.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.jobs.errors import UserError
from elasticdl.ps.initializers import Initializer
from elasticdl.ps.shares import TABLE_PREFIX
from elasticdl.ps.snapshot import SnapshotFile, SnapshotWriter
from elasticdl.ps.table import Frozen, Table, TableRows, TableSpec
from elasticdl.ps.tensors import Array

# The attribute of a file that tells of its tables.
TABLES = "tables"
# A block is read and checked as a whole.
_BLOCK_BYTES = 4 << 20
_ROW_ARRAYS = ("ids", "values", "slots", "steps", "seen")
_WAITING_ARRAYS = ("waiting_ids", "waiting_counts", "waiting_seen")


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is known of a table without its rows."""

    spec: TableSpec
    buckets: int
    slot_names: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        spec = self.spec
        return {
            "width": spec.width,
            "initializer": {"kind": spec.initializer.kind, "options": dict(spec.initializer.options)},
            "seed": spec.seed,
            "admit_after": spec.admit_after,
            "expire_after": spec.expire_after,
            "buckets": self.buckets,
            "slots": list(self.slot_names),
        }

    @staticmethod
    def of_json(name: str, document: Mapping[str, Any]) -> Description:
        spec = TableSpec(
            name=name,
            width=int(document["width"]),
            initializer=Initializer(**document["initializer"]),
            seed=int(document["seed"]),
            admit_after=int(document["admit_after"]),
            expire_after=int(document["expire_after"]),
        )
        return Description(
            spec=spec, buckets=int(document["buckets"]), slot_names=tuple(map(str, document["slots"]))
        )


def describe(table: Table) -> Description:
    return Description(spec=table.spec, buckets=table.buckets, slot_names=tuple(table.slot_names))


# -- writing -------------------------------------------------------------------------------------------------------


def write_table(
    file: SnapshotWriter,
    table: Table,
    frozen: Frozen,
    *,
    buckets: Iterable[int],
    since: Frozen | None = None,
    release: bool = True,
) -> dict[str, Any]:
    """Writes some buckets of a frozen copy, or what has changed in them `since` an earlier one of this table.

    Returns what belongs into the file's attribute `tables` under the table's name. The copy of a bucket is released
    as soon as it is written, so that what changes meanwhile need not be kept; not if others look at it (`release`).
    """
    block: list[tuple[int, TableRows]] = []
    size = 0
    for bucket in sorted(buckets):
        rows = table.export(bucket, frozen=frozen, since=since)
        if release:
            table.release(frozen, bucket=bucket)
        block.append((bucket, rows))
        size += sum(array.nbytes for array in _arrays_of(rows).values())
        if size >= _BLOCK_BYTES:
            _write_block(file, table, block)
            block, size = [], 0
    if block:
        _write_block(file, table, block)
    return describe(table).as_json()


def _arrays_of(rows: TableRows) -> dict[str, Array]:
    found = {name: getattr(rows, name) for name in (*_ROW_ARRAYS, *_WAITING_ARRAYS)}
    return {name: array for name, array in found.items() if array is not None}


def _write_block(file: SnapshotWriter, table: Table, block: Sequence[tuple[int, TableRows]]) -> None:
    group, name = f"{TABLE_PREFIX}{table.spec.name}", str(block[0][0])

    def starts(sizes: list[int]) -> Array:
        return np.cumsum([0, *sizes], dtype=np.int64)

    arrays: dict[str, Array] = {
        "buckets": np.array([bucket for bucket, _ in block], np.uint32),
        "starts": starts([len(rows.ids) for _, rows in block]),
        "complete": np.array([rows.complete for _, rows in block], np.uint8),
    }
    waiting = [0 if rows.waiting_ids is None else len(rows.waiting_ids) for _, rows in block]
    if any(waiting):
        arrays["waiting_starts"] = starts(waiting)
    parts = [_arrays_of(rows) for _, rows in block]
    for kind in parts[0]:
        if kind not in _WAITING_ARRAYS or any(waiting):
            pieces = [part[kind] for part in parts]
            arrays[kind] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    for kind, array in arrays.items():
        file.add(group, f"{name}/{kind}", array)


# -- reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a bucket is: a block of a file, and which rows of it."""

    block: str
    rows: slice
    waiting: slice
    complete: bool


class TableInFile:
    """What one file has of a table."""

    def __init__(self, file: SnapshotFile, description: Description) -> None:
        self.description = description
        self._file = file
        self._group = f"{TABLE_PREFIX}{description.spec.name}"
        self._entries = file.entries.get(self._group, {})
        self.places: dict[int, _Place] = {}
        # The last one: buckets are asked for in their order.
        self._block: tuple[str, dict[str, Array]] = ("", {})
        for name in self._entries:
            block, _, kind = name.partition("/")
            if kind == "buckets":
                self._find_buckets(block)

    def _find_buckets(self, block: str) -> None:
        try:
            buckets, starts, complete = (
                self._read(f"{block}/{kind}") for kind in ("buckets", "starts", "complete")
            )
            waits = f"{block}/waiting_starts"
            waiting = self._read(waits) if waits in self._entries else np.zeros(len(buckets) + 1, np.int64)
            if not len(starts) == len(waiting) == len(buckets) + 1 == len(complete) + 1:
                raise ValueError(f"block {block} has {len(buckets)} buckets and {len(starts)} starts")
            self._check_shapes(block, int(starts[-1]))
            for number, bucket in enumerate(buckets.tolist()):
                if bucket >= self.description.buckets or bucket in self.places:
                    raise ValueError(f"bucket {bucket} is one too many")
                self.places[bucket] = _Place(
                    block=block,
                    rows=slice(int(starts[number]), int(starts[number + 1])),
                    waiting=slice(int(waiting[number]), int(waiting[number + 1])),
                    complete=bool(complete[number]),
                )
        except (KeyError, ValueError) as error:
            raise self._damaged(str(error)) from error

    def _check_shapes(self, block: str, rows: int) -> None:
        width, slots = self.description.spec.width, len(self.description.slot_names)
        expected = {"ids": (rows,), "values": (rows, width), "slots": (rows, slots, width)}
        for name, shape in expected.items():
            found = self._entries[f"{block}/{name}"].shape
            if found != shape:
                raise ValueError(f"{block}/{name} has shape {list(found)} and not {list(shape)}")

    def read(self, bucket: int) -> TableRows:
        place = self.places[bucket]
        if self._block[0] != place.block:
            names = (*_ROW_ARRAYS, *_WAITING_ARRAYS)
            keys = {
                kind: f"{place.block}/{kind}" for kind in names if f"{place.block}/{kind}" in self._entries
            }
            self._block = (place.block, {kind: self._read(key) for kind, key in keys.items()})
        arrays = {
            kind: array[place.waiting if kind in _WAITING_ARRAYS else place.rows]
            for kind, array in self._block[1].items()
        }
        return TableRows(**arrays, complete=place.complete)

    def _read(self, name: str) -> Array:
        return self._file.read(self._group, name)

    def _damaged(self, what: str) -> UserError:
        return UserError(
            f"{self._file.path} is damaged: the table {self.description.spec.name} makes no sense ({what}).",
            hint="Restore the file, or start from an older checkpoint.",
        )


class SavedTables:
    """The tables in a chain of checkpoints: the files of each, the oldest checkpoint first."""

    def __init__(self, checkpoints: Sequence[Sequence[Path]]) -> None:
        self._stack = contextlib.ExitStack()
        self.descriptions: dict[str, Description] = {}
        # By table: the checkpoints, and what is in each by bucket.
        self._found: dict[str, list[dict[int, TableInFile]]] = {}
        try:
            for number, paths in enumerate(checkpoints):
                for path in paths:
                    self._open(self._stack.enter_context(SnapshotFile(path)), number, len(checkpoints))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> SavedTables:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def _open(self, file: SnapshotFile, checkpoint: int, checkpoints: int) -> None:
        for name, document in file.attributes.get(TABLES, {}).items():
            try:
                description = Description.of_json(name, document)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{file.path} is damaged: what it says of the table {name} makes no sense ({error!r})."
                ) from error
            # Of several, that of the newest checkpoint.
            self.descriptions[name] = description
            held = self._found.setdefault(name, [{} for _ in range(checkpoints)])[checkpoint]
            part = TableInFile(file, description)
            for bucket in part.places:
                if bucket in held:
                    raise UserError(
                        f"Bucket {bucket} of the table {name} is in {file.path} and in another file of this "
                        "checkpoint.",
                        hint="The files were not written together. Start from another checkpoint.",
                    )
                held[bucket] = part

    def layers(self, name: str, bucket: int) -> Iterator[TableRows]:
        """What a bucket is made of: a complete one first, then what changed. Nothing, if it is in no file."""
        held = [each.get(bucket) for each in self._found[name]]
        first = max((n for n, part in enumerate(held) if part and part.places[bucket].complete), default=-1)
        if first < 0 and any(held):
            raise UserError(
                f"Bucket {bucket} of the table {name} is nowhere complete in these checkpoints.",
                hint="Start from an older checkpoint.",
            )
        for part in held[max(first, 0) :]:
            if part is not None:
                yield part.read(bucket)

    def rows(self, name: str, bucket: int) -> TableRows | None:
        """A bucket put together; None if there is nothing of it."""
        layers = list(self.layers(name, bucket))
        if len(layers) < 2:
            return layers[0] if layers else None
        ids = np.concatenate([layer.ids for layer in layers])
        # Of rows that come several times, the last.
        _, from_end = np.unique(ids[::-1], return_index=True)
        kept = np.sort(len(ids) - 1 - from_end)
        joined: dict[str, Any] = {}
        for kind in _ROW_ARRAYS:
            arrays = [getattr(layer, kind) for layer in layers]
            joined[kind] = None if arrays[0] is None else np.concatenate(arrays)[kept]
        waiting = {kind: getattr(layers[-1], kind) for kind in _WAITING_ARRAYS}
        return TableRows(**joined, **waiting)

    def restore(self, table: Table, *, buckets: Collection[int] | None = None) -> None:
        """Puts buckets of a table in place of what is there. One that is in no checkpoint becomes empty.

        Slots are left out if they are those of another optimizer. Raises `UserError` if the table is another one.
        """
        wanted = range(table.buckets) if buckets is None else sorted(buckets)
        saved = self.descriptions.get(table.spec.name)
        if saved is not None and saved.spec.width != table.spec.width:
            raise UserError(
                f"Rows of the table {table.spec.name} have {saved.spec.width} numbers in the checkpoint, and "
                f"{table.spec.width} in this model.",
                hint="Is the checkpoint that the job started from one of this model?",
            )
        if saved is not None and saved.buckets != table.buckets:
            raise UserError(f"The checkpoint has {saved.buckets} buckets, and there are {table.buckets}.")
        for bucket in wanted:
            table.delete(bucket)
            for layer in self.layers(table.spec.name, bucket) if saved is not None else ():
                table.forget_waiting(bucket)
                table.put(_fitting(layer, table, saved) if saved is not None else layer)


def _fitting(rows: TableRows, table: Table, saved: Description) -> TableRows:
    has_slots = list(saved.slot_names) == list(table.slot_names)
    return replace(
        rows,
        ids=np.ascontiguousarray(rows.ids),
        slots=rows.slots if has_slots else None,
        steps=rows.steps if has_slots else None,
    )
