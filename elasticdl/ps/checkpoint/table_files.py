"""Tables in the files of checkpoints: written from frozen copies bucket by bucket, read for the buckets one wants.

What a table is stands in the file's attribute `tables`, what is in it in blocks (`table_blocks.py`). A bucket is in one
file of a checkpoint. What it holds is found by going back through the chain of checkpoints to one where it is complete,
and putting what changed on top.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFile, ArrayFileWriter, check_finite
from elasticdl.ps.checkpoint.resharding import TABLE_PREFIX
from elasticdl.ps.checkpoint.table_blocks import ALL_ARRAYS, ROW_ARRAYS, WAITING_ARRAYS, Scratch, TableInFile
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.table import Frozen, Table, TableRows, TableSpec

# The attributes of a file that tell of its tables, and their step if it is not that of the model.
TABLES = "tables"
STEP = "table_step"
_MODEL_STEP = "version"
# A block is read and checked as a whole.
_BLOCK_BYTES = 4 << 20
# Restored by one thread after the other: those of one lock of a table, and of one block of a file if it is small.
_AT_ONCE = 8
_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class TableDescription:
    """The description of a table without its rows."""

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
    def of_json(name: str, document: Mapping[str, Any]) -> TableDescription:
        spec = TableSpec(
            name=name,
            width=int(document["width"]),
            initializer=Initializer(**document["initializer"]),
            seed=int(document["seed"]),
            admit_after=int(document["admit_after"]),
            expire_after=int(document["expire_after"]),
        )
        return TableDescription(
            spec=spec, buckets=int(document["buckets"]), slot_names=tuple(map(str, document["slots"]))
        )


def describe(table: Table) -> TableDescription:
    return TableDescription(spec=table.spec, buckets=table.buckets, slot_names=tuple(table.slot_names))


# -- writing -------------------------------------------------------------------------------------------------------


def write_table(
    file: ArrayFileWriter,
    table: Table,
    frozen: Frozen,
    *,
    buckets: Iterable[int],
    since: Mapping[int, Frozen] | None = None,
    release: bool = True,
) -> bool:
    """Writes some buckets of a copy-on-write snapshot; of some only the changes `since` an earlier one.

    Returns whether all of them are complete. What the table is (`describe`) belongs into the file's attribute `tables`
    under its name. The copy of a bucket is released as soon as it is written, so that what changes meanwhile need not
    be kept; not if others look at it (`release`).
    """
    block: list[tuple[int, TableRows]] = []
    size, complete = 0, True
    for bucket in sorted(buckets):
        rows = table.export(bucket, frozen=frozen, since=since.get(bucket) if since else None)
        if release:
            table.release(frozen, bucket=bucket)
        check_finite("table", {table.spec.name: rows.values})
        block.append((bucket, rows))
        complete &= rows.complete
        size += sum(array.nbytes for array in _arrays_of(rows).values())
        if size >= _BLOCK_BYTES:
            _write_block(file, table, block)
            block, size = [], 0
    if block:
        _write_block(file, table, block)
    return complete


def _arrays_of(rows: TableRows) -> dict[str, Array]:
    found = {name: getattr(rows, name) for name in ALL_ARRAYS}
    return {name: array for name, array in found.items() if array is not None}


def _write_block(file: ArrayFileWriter, table: Table, block: Sequence[tuple[int, TableRows]]) -> None:
    group, name = f"{TABLE_PREFIX}{table.spec.name}", str(block[0][0])

    def starts(sizes: list[int]) -> Array:
        return np.cumsum([0, *sizes], dtype=np.int64)

    arrays: dict[str, Array] = {
        "buckets": np.array([bucket for bucket, _ in block], np.uint32),
        "starts": starts([len(rows.ids) for _, rows in block]),
        "complete": np.array([rows.complete for _, rows in block], np.uint8),
    }
    waiting = [0 if rows.waiting_ids is None else len(rows.waiting_ids) for _, rows in block]
    forgotten = [0 if rows.forgotten is None else len(rows.forgotten) for _, rows in block]
    left_out: set[str] = set()
    for sizes, name_of_starts, kinds in (
        (waiting, "waiting_starts", WAITING_ARRAYS),
        (forgotten, "forgotten_starts", ("forgotten",)),
    ):
        if any(sizes):
            arrays[name_of_starts] = starts(sizes)
        else:
            left_out |= set(kinds)
    parts = [_arrays_of(rows) for _, rows in block]
    for kind in parts[0]:
        if kind not in left_out:
            pieces = [part[kind] for part in parts]
            arrays[kind] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    for kind, array in arrays.items():
        file.add(group, f"{name}/{kind}", array)


# -- reading -------------------------------------------------------------------------------------------------------


class SavedTables:
    """The tables in a chain of checkpoints: the files of each, the oldest checkpoint first."""

    def __init__(self, checkpoints: Sequence[Sequence[Path]]) -> None:
        self._stack = contextlib.ExitStack()
        self.descriptions: dict[str, TableDescription] = {}
        # At which the newest checkpoint was made.
        self.step = 0
        # By table: the checkpoints, and what is in each by bucket.
        self._found: dict[str, list[dict[int, TableInFile]]] = {}
        try:
            for number, paths in enumerate(checkpoints):
                for path in paths:
                    self._open(self._stack.enter_context(ArrayFile(path)), number, len(checkpoints))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> SavedTables:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def _open(self, file: ArrayFile, checkpoint: int, checkpoints: int) -> None:
        if checkpoint == checkpoints - 1:
            step = file.attributes.get(STEP, file.attributes.get(_MODEL_STEP, 0))
            self.step = max(self.step, int(step))
        for name, document in file.attributes.get(TABLES, {}).items():
            try:
                description = TableDescription.of_json(name, document)
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{file.path} is damaged: what it says of the table {name} makes no sense ({error!r})."
                ) from error
            # The description of the newest checkpoint, if there are several.
            self.descriptions[name] = description
            held = self._found.setdefault(name, [{} for _ in range(checkpoints)])[checkpoint]
            part = TableInFile(
                file,
                name=name,
                width=description.spec.width,
                slots=len(description.slot_names),
                buckets=description.buckets,
            )
            for bucket in part.places:
                if bucket in held:
                    raise UserError(
                        f"Bucket {bucket} of the table {name} is in {file.path} and in another file of this "
                        "checkpoint.",
                        hint="The files were not written together. Start from another checkpoint.",
                    )
                held[bucket] = part

    def bytes(self, name: str) -> int:
        """Returns the size of a table in all files."""
        parts = {id(part): part for held in self._found[name] for part in held.values()}
        return sum(part.bytes for part in parts.values())

    def count(self, name: str, bucket: int) -> int:
        """The rows of a bucket."""
        parts = self._layers(name, bucket)
        if len(parts) < 2:
            return self._first_rows(name, bucket)
        return sum(int(kept.sum()) for kept in _still_there([part.read_ids(bucket) for part in parts]))

    def _first_rows(self, name: str, bucket: int) -> int:
        """Returns the number of rows in the first layer of a bucket."""
        places = [part.places[bucket].rows for part in self._layers(name, bucket)[:1]]
        return sum(place.stop - place.start for place in places)

    def layers(self, name: str, bucket: int) -> Iterator[TableRows]:
        """Yields the layers of a bucket: a complete one first, then the changes. Nothing, if it is in no file."""
        return (part.read(bucket) for part in self._layers(name, bucket))

    def _layers(self, name: str, bucket: int) -> list[TableInFile]:
        held = [each.get(bucket) for each in self._found[name]]
        first = max((n for n, part in enumerate(held) if part and part.places[bucket].complete), default=-1)
        if first < 0 and any(held):
            raise UserError(
                f"Bucket {bucket} of the table {name} is nowhere complete in these checkpoints.",
                hint="Start from an older checkpoint.",
            )
        return [part for part in held[max(first, 0) :] if part is not None]

    def rows(self, name: str, bucket: int) -> TableRows | None:
        """A bucket put together; None if there is nothing of it."""
        layers = list(self.layers(name, bucket))
        if len(layers) < 2:
            return layers[0] if layers else None
        nothing = np.empty(0, np.int64)
        kept = _still_there(
            [(layer.ids, nothing if (f := layer.forgotten) is None else f) for layer in layers]
        )
        joined: dict[str, Any] = {}
        for kind in ROW_ARRAYS:
            arrays = [getattr(layer, kind) for layer in layers]
            if all(array is not None for array in arrays):
                joined[kind] = np.concatenate(
                    [each[chosen] for each, chosen in zip(arrays, kept, strict=True)]
                )
        waiting = {kind: getattr(layers[-1], kind) for kind in WAITING_ARRAYS}
        return TableRows(**joined, **waiting)

    def restore(
        self, table: Table, *, buckets: Collection[int] | None = None, step: int | None = None
    ) -> None:
        """Puts buckets of a table in place of what is there. One that is in no checkpoint becomes empty.

        Slots are left out if they are those of another optimizer. Raises `UserError` if the table is another one.
        `step`: at which the table goes on, if steps are counted otherwise there. Rows are as old then as they were;
        those of which it is not known, since they did not expire, are new.
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
        parts = [wanted[start : start + _AT_ONCE] for start in range(0, len(wanted), _AT_ONCE)]
        scratch = _Scratch()
        if saved is not None:
            table.expect(sum(self._first_rows(table.spec.name, bucket) for bucket in wanted))
        # Reading, checking and putting in all let the interpreter go.
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1), "restore") as pool:
            goes_on = self.step if step is None else step
            done = [pool.submit(self._restore, table, part, saved, scratch, goes_on) for part in parts]
            try:
                for each in done:
                    each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _restore(
        self,
        table: Table,
        buckets: Sequence[int],
        saved: TableDescription | None,
        scratch: _Scratch,
        step: int,
    ) -> None:
        for bucket in buckets:
            table.delete(bucket)
            if saved is None:
                continue
            for part in self._layers(table.spec.name, bucket):
                layer = part.read(bucket, scratch.memory)
                table.forget_waiting(bucket)
                if layer.forgotten is not None and len(layer.forgotten):
                    table.forget(bucket, layer.forgotten)
                table.put(_fitting(layer, table, saved, later=step - self.step), step=step)


class _Scratch(threading.local):
    """Each thread has its own."""

    def __init__(self) -> None:
        self.memory = Scratch()


def _still_there(layers: Sequence[tuple[Array, Array]]) -> list[Array]:
    """Returns, for each layer, the rows that no later one replaces or removes. A layer is given as ids with rows, and
    removed ids.
    """
    kept: list[Array] = []
    later = np.empty(0, np.int64)
    for ids, forgotten in reversed(layers):
        kept.insert(0, ~np.isin(ids, later))
        later = np.concatenate([later, ids, forgotten])
    return kept


def _fitting(rows: TableRows, table: Table, saved: TableDescription, *, later: int) -> TableRows:
    """`later`: so many steps more have been counted where the rows go to."""
    has_slots = list(saved.slot_names) == list(table.slot_names)
    return replace(
        rows,
        ids=np.ascontiguousarray(rows.ids),
        slots=rows.slots if has_slots else None,
        steps=rows.steps if has_slots else None,
        seen=_shifted(rows.seen, later),
        waiting_seen=_shifted(rows.waiting_seen, later),
    )


def _shifted(seen: NDArray[np.uint32] | None, later: int) -> NDArray[np.uint32] | None:
    if seen is None or not later:
        return seen
    return np.maximum(seen.astype(np.int64) + later, 0).astype(np.uint32)
