"""A table: an embedding whose rows are keyed by any int64 id and created on first access.

The kernels (native/table.h) do the work, with the interpreter lock released: several threads may look up and update at
once. This module checks arguments and reports errors.

Ids belong to buckets (`buckets_of`), the unit of migration and of snapshots: `export` returns the rows of one, `put`
adds them, `delete` removes them.

The content of a table depends only on its updates, in their order: a lookup returns for an id without a row the values
that its row would start with, whether it creates the row or not. So a replica with the same updates is the same to the
bit. Admission: with `admit_after` k an id gets its row with its k-th update; the gradients before that are dropped.
Expiry: with `expire_after` n, `expire` removes the rows that were not updated in the last n steps.

`freeze` takes a copy-on-write snapshot of a table between two updates, for lookups and exports while updates continue.
Only rows that change meanwhile are copied, some rows at a time; there may be several snapshots. `export` returns the
difference of two: rows that are new or changed, and the ids of removed ones.

A full server keeps, serves and trains its rows. It refuses lookups that need new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps import _kernels
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_row_updates import update_rows
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import Optimizer

__all__ = [
    "Budget",
    "Frozen",
    "Outcome",
    "Table",
    "TableFull",
    "TableRows",
    "TableSpec",
    "as_ids",
    "buckets_of",
    "convert",
    "parts_of",
]

Budget = _kernels.Budget
Outcome = _kernels.Outcome
buckets_of = _kernels.buckets_of
parts_of = _kernels.parts_of

# In so many a bucket can be exported.
MOST_PARTS = 256

# In which rows and gradients may travel. NumPy knows no bfloat16: it is carried as uint16.
TRANSFER: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
}

Ids = NDArray[np.int64]

# A table as it was once. They are numbered from 1 on; their order is that in which they were made.
Frozen = NewType("Frozen", int)


MORE_ROOM = (
    "More parameter servers (--num_ps) may help, more memory for each (--ps_resource_limit), or fewer rows: layers "
    "have admit_after and expire_after."
)


class TableFull(UserError):
    """There is no memory left for new rows."""

    def __init__(self, message: str, *, hint: str = "", refused: Mapping[str, int] | None = None) -> None:
        """`refused`: how many rows of which tables."""
        super().__init__(message, hint=hint)
        self.refused = refused or {}


# How often in the time after which a row expires rows are looked through.
_EXPIRY_ROUNDS = 8

# Whole numbers among the options of a table: from, to. Sightings and steps are counted in 32 bits; a seed travels as an
# int64; a row of more numbers than that is no row of a table.
_LIMITS = (
    ("width", 1, 1 << 20),
    ("seed", -(1 << 63), (1 << 63) - 1),
    ("admit_after", 1, (1 << 32) - 1),
    ("expire_after", 0, (1 << 32) - 1),
)


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """The specification of a table; servers with the same one give the same rows."""

    name: str
    width: int
    initializer: Initializer = field(default_factory=Initializer)
    seed: int = 0
    # The update with which an id gets its row: the first, the second, …
    admit_after: int = 1
    # Steps after which a row that was not updated is forgotten; 0: never.
    expire_after: int = 0

    def __post_init__(self) -> None:
        for option, least, most in _LIMITS:
            value = getattr(self, option)
            if not isinstance(value, int | np.integer) or not least <= value <= most:
                article = "an" if option[0] in "ae" else "a"
                raise UserError(
                    f"The table {self.name} cannot have {article} {option} of {value!r}: "
                    f"it must be a whole number from {least:,} to {most:,}."
                )
            # NumPy's may overflow when computed with, and are nothing that JSON and kernels know.
            object.__setattr__(self, option, int(value))
        self.initializer.check(self.name)


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """Rows as arrays: what a bucket is outside of its table."""

    ids: Ids
    values: NDArray[np.float32]
    # By row, slot (in the optimizer's order), column. None: as those of new rows.
    slots: NDArray[np.float32] | None = None
    # Updates of each row, if the optimizer counts them; the step of its last one, if rows expire.
    steps: NDArray[np.uint32] | None = None
    seen: NDArray[np.uint32] | None = None
    # Ids that have been updated, but not often enough.
    waiting_ids: Ids | None = None
    waiting_counts: NDArray[np.uint32] | None = None
    waiting_seen: NDArray[np.uint32] | None = None
    # All rows of the bucket, or only those that may have changed; pending ids are always all there are.
    complete: bool = True
    # If these are not all: the ids whose rows were removed before these came.
    forgotten: Ids | None = None


class Table:
    """Safe to call from many threads."""

    def __init__(
        self, spec: TableSpec, optimizer: Optimizer, *, buckets: int, budget: Budget | None = None
    ) -> None:
        self.spec = spec
        self.slot_names = optimizer.rule.slot_names
        self._custom = optimizer.custom
        self.budget = budget or Budget()
        self._table = _kernels.Table(
            width=spec.width,
            buckets=buckets,
            rule=optimizer.rule,
            initializer=spec.initializer.kernel(seed=spec.seed, table=spec.name, width=spec.width),
            admit_after=spec.admit_after,
            tracks_seen=spec.expire_after > 0,
            budget=self.budget,
        )

    def __len__(self) -> int:
        return len(self._table)

    @property
    def buckets(self) -> int:
        return self._table.buckets

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of a row, with its slots and its metadata."""
        return self._table.row_bytes

    @property
    def copied_bytes(self) -> int:
        """Returns the bytes of rows copied for snapshots since these were taken; they are freed when the snapshots are
        released.
        """
        return self._table.copied_bytes

    @property
    def spare_bytes(self) -> int:
        """Of those in use: where rows were that are gone. New rows of this table come there first."""
        return self._table.spare_bytes

    def bucket_rows(self, bucket: int) -> int:
        return self._table.bucket_rows(bucket)

    def bucket_bytes(self, bucket: int) -> int:
        """Of its rows, and of ids that wait for one."""
        return self._table.bucket_bytes(bucket)

    def gather(
        self,
        ids: Any,
        *,
        dtype: str = "float32",
        step: int = 0,
        create: bool = True,
        frozen: Frozen | None = None,
    ) -> Array:
        """The values of rows, now or in a copy-on-write snapshot; in a snapshot or without `create`, as for evaluation,
        no row is created.

        Raises `TableFull` if rows would have to be made and there is no memory for them.
        """
        wanted = as_ids(ids, what=self.spec.name)
        out = np.empty((len(wanted), self.spec.width), TRANSFER[dtype])
        outcome = self._table.gather(wanted, out, step, create, frozen or 0)
        if outcome.refused:
            raise TableFull(
                f"The table {self.spec.name} cannot take {outcome.refused:,} new rows: {len(self):,} rows and "
                f"{self.budget.used:,} of {self.budget.limit:,} bytes are in use on this parameter server.",
                hint=MORE_ROOM,
            )
        return out

    def gather_into(self, ids: Ids, out: Array, *, frozen: Frozen | None = None) -> int:
        """The same, in memory of the caller, whose type says how; nothing is made. Returns how many have a row."""
        return self._table.gather(ids, out, 0, False, frozen or 0).found

    def missing(self, ids: Ids) -> int:
        """How many of some ids have no row."""
        out = np.empty((len(ids), self.spec.width), np.float32)
        return self._table.gather(ids, out, 0, False).absent

    def update(
        self,
        ids: Any,
        gradients: Array,
        *,
        learning_rate: float,
        step: int = 0,
        scale: float = 1.0,
        clip_norm: float = 0.0,
        clip_value: float = 0.0,
        unique: bool = False,
        finite: bool = False,
    ) -> Outcome:
        """One update of each id's row by the sum of its gradients.

        Gradients are multiplied by `scale`, then clipped to a norm (each row's), then number by number; 0 is not at
        all. `unique`: no id comes twice; `finite`: all gradients are finite. Both save the time to find
        out; ids in the order of their buckets save some, too. Raises `UserError`, with nothing
        changed, if gradients do not fit or are not finite. The outcome tells how many ids have no row because they
        must wait, or because there is no memory: their gradients are lost.
        """
        wanted = as_ids(ids, what=self.spec.name)
        if gradients.shape != (len(wanted), self.spec.width):
            raise UserError(
                f"The gradient of the table {self.spec.name} has shape {list(gradients.shape)} "
                f"for {len(wanted)} ids; its rows have {self.spec.width} numbers."
            )
        if gradients.dtype not in TRANSFER.values():
            gradients = gradients.astype(np.float32)
        given = np.ascontiguousarray(gradients)
        if self._custom is None:
            outcome = self._table.update(
                wanted,
                given,
                learning_rate,
                step,
                scale=scale,
                clip_norm=clip_norm,
                clip_value=clip_value,
                unique=unique,
                finite=finite,
            )
        else:
            outcome = update_rows(
                self._custom,
                self.spec.name,
                self._table,
                wanted,
                given,
                learning_rate=learning_rate,
                step=step,
                scale=scale,
                clip_norm=clip_norm,
                clip_value=clip_value,
                unique=unique,
            )
        if outcome.not_finite:
            raise UserError(
                f"The gradient of the table {self.spec.name} is not finite (NaN or infinity) in "
                f"{outcome.not_finite:,} places.",
                hint="A smaller learning rate, clipped gradients or other data may help.",
            )
        return outcome

    def freeze(self, *, mark: bool = False) -> Frozen:
        """A copy of the table as it is when no update is under way: it waits for those that are.

        `mark`: a later `export` will ask for the changes since. Without it that is right, too, and longer.
        """
        return Frozen(self._table.freeze(mark))

    def release(self, frozen: Frozen, *, bucket: int | None = None) -> None:
        """Ends the reading of this copy, or of a bucket of it. Idempotent."""
        for each in range(self.buckets) if bucket is None else (bucket,):
            self._table.release(each, frozen)

    def export(self, bucket: int, *, frozen: Frozen | None = None, since: Frozen | None = None) -> TableRows:
        """What is in a bucket, now or in a copy-on-write snapshot.

        `since` is an earlier one, which may have been released: what has not changed from it to `frozen` is left out.
        If that is unknown, all rows are there, and the outcome is `complete`.
        """
        if since is not None and (frozen is None or since > frozen):
            raise ValueError("changes are those between two frozen copies, the earlier and the later one")
        return TableRows(**self._table.take_copy(bucket, frozen or 0, since or 0))

    def export_part(self, bucket: int, part: int, parts: int) -> TableRows:
        """What is now in one of so many parts of a bucket, by the hashes of ids: together they are all of it.

        `MOST_PARTS` at most.
        """
        return TableRows(**self._table.take_part(bucket, part, parts))

    def expect(self, rows: int) -> None:
        """So many rows are about to be put in; it goes faster if this is known."""
        self._table.expect_rows(rows)

    def put(self, rows: TableRows, *, step: int = 0) -> None:
        """Takes rows in, in place of those with the same ids. Raises `TableFull` if some found no memory.

        Rows that come from where they do not expire, and so without the step of their last update, had it at `step`.
        """
        seen = rows.seen
        if seen is None and self.spec.expire_after:
            seen = np.full(len(rows.ids), step, np.uint32)
        outcome = self._table.put(rows.ids, rows.values, rows.slots, rows.steps, seen)
        if (
            self.spec.admit_after > 1
            and rows.waiting_ids is not None
            and rows.waiting_counts is not None
            and rows.waiting_seen is not None
        ):
            self._table.put_waiting(rows.waiting_ids, rows.waiting_counts, rows.waiting_seen)
        if outcome.refused:
            raise TableFull(
                f"The table {self.spec.name} cannot take {outcome.refused:,} rows: {self.budget.used:,} of "
                f"{self.budget.limit:,} bytes are in use on this parameter server.",
                hint=MORE_ROOM,
            )

    def forget(self, bucket: int, ids: Ids) -> int:
        """Removes rows, and returns how many of these ids had one."""
        return self._table.forget(bucket, np.ascontiguousarray(ids))

    def forget_waiting(self, bucket: int) -> None:
        """Forgets how often ids without a row have been updated."""
        self._table.forget_waiting(bucket)

    def delete(self, bucket: int) -> int:
        """Forgets a bucket, and returns how many rows it had. One that comes from elsewhere begins with this."""
        return self._table.clear(bucket)

    def due(self, step: int) -> range:
        """The buckets whose turn it is at a step to be looked through for rows that have expired: all of them once in
        an eighth of the time after which a row does, and so few of many rows at once. By the step alone, so that tables
        that get the same updates remain the same.
        """
        round_steps = max(1, self.spec.expire_after // _EXPIRY_ROUNDS)
        turn = step % round_steps
        first, end = (-(-each * self.buckets // round_steps) for each in (turn, turn + 1))
        return range(first, end)

    def expire(self, step: int, *, buckets: Iterable[int] | None = None) -> int:
        """Forgets rows that were not updated for too long, of all buckets or some, and returns how many."""
        before = step - self.spec.expire_after
        if not self.spec.expire_after or before <= 0:
            return 0
        wanted = range(self.buckets) if buckets is None else buckets
        return sum(self._table.expire(bucket, before) for bucket in wanted)


def as_ids(ids: Any, *, what: str = "the table") -> Ids:
    """Ids as the kernels take them. Raises `UserError` if they are no int64."""
    try:
        given = np.asarray(ids)
    except OverflowError:
        given = np.asarray(ids, dtype=object)
    if given.dtype == np.int64:
        return np.ascontiguousarray(given.reshape(-1))
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind in "iu" and (given.dtype.itemsize < 8 or int(given.max()) < 1 << 63):
        return np.ascontiguousarray(given.reshape(-1), dtype=np.int64)
    if given.dtype.kind in "uO":
        raise UserError(f"Ids for {what} are outside of int64.", hint="Hash them into it, or subtract 2⁶³.")
    raise UserError(f"Ids for {what} are of {given.dtype.name}, and must be whole numbers.")


def convert(array: Array, dtype: str, *, source: str = "float32") -> Array:
    """Numbers in another of the types they may travel in; `source` tells what uint16 stands for."""
    if array.dtype != TRANSFER[source]:
        raise ValueError(f"the array is of {array.dtype.name} and not {source}")
    out = np.empty(array.shape, TRANSFER[dtype])
    _kernels.convert(np.ascontiguousarray(array), out)
    return out


def as_float32(array: Array) -> NDArray[np.float32]:
    """A copy, of numbers in any of the types they may travel in."""
    if array.dtype not in TRANSFER.values():
        return array.astype(np.float32)
    out = np.empty(array.shape, np.float32)
    _kernels.convert(np.ascontiguousarray(array), out)
    return out
