"""All tables of one server: declared by the layers of a model, looked up and updated by name.

What is in a table depends on the updates that it got and on their order alone (`table.py`): so on a server that backs
up another the tables are the same to the bit. Whether there is memory for new rows is therefore decided before an
update, by the server that workers turn to, and not by the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps import _kernels
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.resharding import WAITING_PREFIX
from elasticdl.ps.checkpoint.table_files import SavedTables, describe, write_table
from elasticdl.ps.core.array_bodies import Mask, numbers
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.memory_limit import room_beside_rows
from elasticdl.ps.core.server_errors import NotFound
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import Optimizer
from elasticdl.ps.embedding.table import (
    MORE_ROOM,
    Frozen,
    Ids,
    Table,
    TableFull,
    TableRows,
    TableSpec,
    as_float32,
    buckets_of,
    parts_of,
)
from elasticdl.wire import ps_pb2

log = logging.getLogger("elasticdl.ps")

# A group of arrays: the rows of a table on their way to another server, named BUCKET/ARRAY.
ROWS_PREFIX = "rows:"
_ARRAYS = ("ids", "values", "slots", "steps", "seen", "waiting_ids", "waiting_counts", "waiting_seen")
# The last checkpoint, and the one that is just being written.
_REMEMBERED = 2


@dataclass(frozen=True, kw_only=True)
class RowPart:
    """Ids of one table, with their gradients; these may be of any type that they travel in."""

    ids: Ids
    values: Array

    def of(self, mask: Mask) -> RowPart:
        """Returns the rows in some buckets."""
        return self.split(mask)[0]

    def split(self, mask: Mask) -> tuple[RowPart, RowPart]:
        """Returns the rows in some buckets, and the others."""
        inside = mask[buckets_of(self.ids, BUCKETS)]
        if inside.all():
            return self, RowPart(ids=self.ids[:0], values=self.values[:0])
        return (
            RowPart(ids=self.ids[inside], values=self.values[inside]),
            RowPart(ids=self.ids[~inside], values=self.values[~inside]),
        )

    def by_bucket(self) -> Iterator[tuple[int, RowPart]]:
        """Each bucket that there is something of; in it, in the order of the whole."""
        buckets = buckets_of(self.ids, BUCKETS)
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        ids, values = self.ids[order], self.values[order]
        for bucket, start, end in zip(found, starts, np.append(starts, len(ids))[1:], strict=True):
            yield int(bucket), RowPart(ids=ids[start:end], values=values[start:end])


@dataclass(frozen=True, kw_only=True)
class _Written:
    mask: Mask
    tables: Mapping[str, Frozen]


@dataclass(frozen=True, kw_only=True)
class _Saved:
    files: SavedTables
    mask: Mask
    # The step of the model that they belong to.
    step: int


class Tables:
    """Updates come one at a time; lookups at any time."""

    def __init__(self, *, memory_limit: int = 0) -> None:
        """`memory_limit`: bytes for the rows of all tables together; 0: no limit."""
        self._memory_limit = memory_limit
        self._warned_of_limit = False
        self._tables: dict[str, Table] = {}
        # Gradients that wait, by table: in the order in which they came, in float32, and none without ids.
        self._waiting: dict[str, list[RowPart]] = {}
        # Buckets that come in parts: how many have come, of how many.
        self._parts: dict[int, tuple[int, int]] = {}
        # Where tables that are declared from now on have their rows from.
        self._saved: _Saved | None = None
        # Recently written snapshots, by their names.
        self._written: dict[str, _Written] = {}

    @property
    def specs(self) -> list[TableSpec]:
        return [table.spec for table in self._tables.values()]

    @property
    def rows(self) -> int:
        return sum(len(table) for table in self._tables.values())

    @property
    def bytes(self) -> int:
        return sum(table.budget.used for table in self._tables.values())

    def sizes(self) -> dict[str, tuple[int, int]]:
        """The rows of each table, and their bytes with slots and index."""
        return {name: (len(table), table.budget.used) for name, table in self._tables.items()}

    def declare(
        self, specs: Iterable[TableSpec], optimizer: Optimizer, *, changing_at: int | None = None
    ) -> None:
        """Makes the tables that there are not yet. Raises `UserError` if one is there and is otherwise.

        `changing_at`, a step: what is here comes from elsewhere, and which ids get rows, and how long they keep them,
        may be otherwise from this step on.
        """
        given = list(specs)
        changed = {}
        for spec in given:
            known = self._tables.get(spec.name)
            if known is None or known.spec == spec:
                continue
            same_rows = replace(known.spec, admit_after=spec.admit_after, expire_after=spec.expire_after)
            if changing_at is not None and same_rows == spec:
                changed[spec.name] = known
            else:
                raise UserError(
                    f"The table {spec.name} {_difference(known.spec, spec)}.",
                    hint="All workers must have the same model, and so must the checkpoint that the job began with.",
                )
        for spec in given:
            if spec.name in self._tables and spec.name not in changed:
                continue
            table = Table(spec, optimizer, buckets=BUCKETS)
            if spec.name in changed:
                for bucket in range(BUCKETS):
                    table.put(changed[spec.name].export(bucket), step=changing_at or 0)
                self._written = {}
            elif self._saved is not None:
                wanted = list(numbers(self._saved.mask))
                self._saved.files.restore(table, buckets=wanted, step=self._saved.step)
            self._tables[spec.name] = table

    def unknown(self, specs: Iterable[TableSpec]) -> list[TableSpec]:
        """Returns the tables that do not exist yet."""
        return [spec for spec in specs if spec.name not in self._tables]

    def not_among(self, specs: Iterable[TableSpec]) -> list[str]:
        """The names of tables that are here, or were saved, and are none of these."""
        there = [*self._tables, *(self._saved.files.descriptions if self._saved is not None else ())]
        return sorted(set(there) - {spec.name for spec in specs})

    @property
    def lacks_saved(self) -> bool:
        """Whether there are saved tables that are not declared yet: their rows are not here."""
        return self._saved is not None and not self._saved.files.descriptions.keys() <= self._tables.keys()

    def restore_from(self, saved: SavedTables | None, mask: Mask | None = None, *, step: int = 0) -> None:
        """Tables that are declared from now on begin with what was saved of some buckets; None: not any more."""
        if self._saved is not None:
            self._saved.files.close()
        self._saved = None if saved is None or mask is None else _Saved(files=saved, mask=mask, step=step)

    def describe(self) -> dict[str, Any]:
        """Describes the tables as JSON."""
        return {name: describe(table).as_json() for name, table in self._tables.items()}

    def use_optimizer(self, optimizer: Optimizer) -> None:
        """Rows stay as they are; slots do if they are such as this optimizer has."""
        before = self._tables
        groups = self.groups(np.ones(BUCKETS, np.bool_)) if before else {}
        self._waiting = {}
        self._written = {}
        self._tables = {}
        for name, old in before.items():
            new = Table(old.spec, optimizer, buckets=BUCKETS)
            self._tables[name] = new
            if new.slot_names != old.slot_names:
                rows = groups[f"{ROWS_PREFIX}{name}"]
                groups[f"{ROWS_PREFIX}{name}"] = {
                    key: array for key, array in rows.items() if not key.endswith(("/slots", "/steps"))
                }
        self.put(groups)

    def check(self, rows: Mapping[str, RowPart]) -> None:
        """Raises `UserError` if these gradients cannot be applied, all of them."""
        self.check_form(rows)
        needed = 0
        for name, part in rows.items():
            bad = _kernels.count_not_finite(part.values) if part.values.size else 0
            if bad:
                raise NonFiniteGradient(
                    f"The gradient of the table {name} is not finite (NaN or infinity) in {bad:,} places.",
                    hint=_FINITE,
                )
            needed += len(part.ids) * self._tables[name].row_bytes
        if self._memory_limit and self.bytes + needed > self._memory_limit:
            self._check_memory(rows)

    def check_form(self, rows: Mapping[str, RowPart]) -> None:
        """Raises `UserError` if the shapes are not those of the tables, `NotFound` if there is no such table."""
        for name, part in rows.items():
            table = self._find(name)
            if part.values.shape != (len(part.ids), table.spec.width):
                raise UserError(
                    f"The gradient of the table {name} has shape {list(part.values.shape)} "
                    f"for {len(part.ids)} ids; its rows have {table.spec.width} numbers."
                )

    def _check_memory(self, rows: Mapping[str, RowPart]) -> None:
        """The slow way: which of the ids have a row already?"""
        new = {name: self._tables[name].missing(part.ids) for name, part in rows.items()}
        needed = {
            name: max(0, count * self._tables[name].row_bytes - self._tables[name].spare_bytes)
            for name, count in new.items()
        }
        taken = self._taken()
        if taken + sum(needed.values()) > self._memory_limit and any(needed.values()):
            name = max(needed, key=lambda name: needed[name])
            raise TableFull(
                f"The table {name} cannot take {new[name]:,} new rows: {self.rows:,} rows and "
                f"{taken:,} of {self._memory_limit:,} bytes are in use on this parameter server.",
                hint=MORE_ROOM,
                refused={name: count for name, count in new.items() if count},
            )

    def _taken(self) -> int:
        """Returns the bytes that count against the memory limit. Rows that change while a checkpoint is written are in
        memory twice: there is room for that beside the rows, and only what exceeds it counts.
        """
        copied = sum(table.copied_bytes for table in self._tables.values())
        return self.bytes - min(copied, room_beside_rows(self._memory_limit))

    def update(self, rows: Mapping[str, RowPart], learning_rate: float, step: int) -> None:
        """Updates rows with gradients that have been checked, here or by the server that sent them."""
        for name, part in rows.items():
            self._update(name, part, learning_rate=learning_rate, step=step, unique=True, finite=True)

    def _update(self, name: str, part: RowPart, **how: Any) -> None:
        part = self._arrived(part)
        refused = self._tables[name].update(part.ids, part.values, **how).refused
        if refused:
            # The gradients of these are lost, and the copy of this table elsewhere has had them.
            raise MemoryError(f"there is no memory for {refused:,} new rows of the table {name}")

    def _arrived(self, part: RowPart) -> RowPart:
        """Without the rows that are still to come, with what this update makes of them elsewhere. Here it would meet
        new ones, and an optimizer of the user's own may fail on these that does not on the others.
        """
        if not self._parts:
            return part
        there = np.ones(len(part.ids), np.bool_)
        buckets = buckets_of(part.ids, BUCKETS)
        for bucket, (arrived, parts) in self._parts.items():
            inside = np.flatnonzero(buckets == bucket)
            there[inside] = parts_of(part.ids[inside], parts) < arrived
        return RowPart(ids=part.ids[there], values=part.values[there])

    def expire(self, mask: Mask, step: int) -> None:
        """Forgets rows that were not updated for too long, in the buckets whose turn it is."""
        for table in self._tables.values():
            if table.spec.expire_after:
                table.expire(step, buckets=[bucket for bucket in table.due(step) if mask[bucket]])

    def add_waiting(self, rows: Mapping[str, RowPart]) -> None:
        for name, part in rows.items():
            self._add_waiting(name, part)

    def _add_waiting(self, name: str, part: RowPart) -> None:
        """Adds pending gradients in memory of their own. Their transport buffer ends here: uint16 does not name the
        type it encodes.
        """
        if len(part.ids):
            kept = RowPart(ids=part.ids.copy(), values=as_float32(part.values))
            self._waiting.setdefault(name, []).append(kept)

    def _take_waiting(self, name: str, mask: Mask) -> list[RowPart]:
        """Removes and returns the pending gradients of some buckets."""
        taken, rest = [], []
        for part in self._waiting.pop(name, []):
            inside, outside = part.split(mask)
            if len(inside.ids):
                taken.append(inside)
            if len(outside.ids):
                rest.append(outside)
        if rest:
            self._waiting[name] = rest
        return taken

    def apply_waiting(self, mask: Mask, count: int, learning_rate: float, step: int) -> None:
        """Makes one update with the mean of so many gradients."""
        for name in list(self._waiting):
            taken = self._take_waiting(name, mask)
            if taken:
                part = _joined(taken)
                if count > 1:
                    # Before they are added up: a sum may be too large for float32 where the mean is not.
                    np.multiply(part.values, np.float32(1.0 / count), out=part.values)
                self._update(name, part, learning_rate=learning_rate, step=step)

    def gather_into(self, name: str, ids: Ids, out: Array, frozen: Frozen | None = None) -> int:
        return self._find(name).gather_into(ids, out, frozen=frozen)

    def export(self, name: str, mask: Mask) -> tuple[Ids, Array]:
        """All ids of some buckets that have rows, and the rows."""
        table = self._find(name)
        parts = [table.export(bucket) for bucket in numbers(mask)]
        ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in parts)])
        values = np.concatenate(
            [np.empty((0, table.spec.width), np.float32), *(part.values for part in parts)]
        )
        return ids, values

    def width(self, name: str) -> int:
        return self._find(name).spec.width

    def _find(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            raise NotFound(f"there is no table {name!r} here")
        return table

    # -- copies ----------------------------------------------------------------------------------------------

    def freeze(self, *, mark: bool = False) -> dict[str, Frozen]:
        """`mark`: what has changed since is going to be written."""
        return {name: table.freeze(mark=mark) for name, table in self._tables.items()}

    def release(self, frozen: Mapping[str, Frozen]) -> None:
        for name, copy in frozen.items():
            if name in self._tables:
                self._tables[name].release(copy)

    def write(
        self, file: ArrayFileWriter, mask: Mask, frozen: Mapping[str, Frozen], *, since: str = ""
    ) -> bool:
        """Writes some buckets of frozen copies; returns whether all are complete.

        `since` names an earlier copy: of buckets that were written of it here, only what has changed is.
        """
        written = self._written.get(since)
        changed = mask & written.mask if written is not None else np.zeros_like(mask)
        complete = True
        for name, copy in frozen.items():
            base = written.tables.get(name) if written is not None else None
            complete &= write_table(
                file,
                self._tables[name],
                copy,
                buckets=list(numbers(mask)),
                since=dict.fromkeys(numbers(changed), base) if base is not None else {},
                # Not bucket by bucket as they are written: an evaluation may look at the copy, and it is written once
                # more if another server is lost meanwhile. What it holds is not a second table, but what has changed.
                release=False,
            )
        return complete

    def remember(self, copy: str, mask: Mask, frozen: Mapping[str, Frozen]) -> None:
        """Notes that some buckets of a snapshot were written, so that the next checkpoint may build on them."""
        self._written[copy] = _Written(mask=mask, tables=dict(frozen))
        while len(self._written) > _REMEMBERED:
            del self._written[next(iter(self._written))]

    def groups(self, mask: Mask) -> dict[str, dict[str, Array]]:
        """The rows of some buckets, and what waits for them."""
        groups: dict[str, dict[str, Array]] = {}
        for name, table in self._tables.items():
            members = groups.setdefault(f"{ROWS_PREFIX}{name}", {})
            for bucket in numbers(mask):
                members |= _members(bucket, table.export(bucket))
        return {**groups, **self.waiting_groups(mask)}

    def part(self, bucket: int, part: int, parts: int) -> dict[str, dict[str, Array]]:
        """The rows in one of so many parts of a bucket."""
        return {
            f"{ROWS_PREFIX}{name}": _members(bucket, table.export_part(bucket, part, parts))
            for name, table in self._tables.items()
        }

    def bucket_bytes(self, bucket: int) -> int:
        """Returns the bytes of a bucket's rows, and of ids that wait for one."""
        return sum(table.bucket_bytes(bucket) for table in self._tables.values())

    def waiting_groups(self, mask: Mask) -> dict[str, dict[str, Array]]:
        groups: dict[str, dict[str, Array]] = {}
        for name, parts in self._waiting.items():
            members = groups.setdefault(f"{WAITING_PREFIX}{name}", {})
            for bucket, part in _joined([part.of(mask) for part in parts]).by_bucket():
                members[f"{bucket}/ids"] = part.ids
                members[f"{bucket}/values"] = part.values
        return groups

    def arrives(self, bucket: int, part: int, parts: int) -> None:
        """This part of a bucket has been put in, and those before it."""
        self._parts[bucket] = (part + 1, parts)
        if part + 1 == parts:
            del self._parts[bucket]

    def put(self, groups: Mapping[str, Mapping[str, Array]], *, step: int = 0) -> None:
        """Takes in what `groups` gave, at a step. Slots that are another optimizer's are reset.

        Also beyond the memory limit: what another server hands over, or loses, has to be somewhere.
        """
        for group, members in groups.items():
            name = group.partition(":")[2]
            if name not in self._tables:
                continue
            by_bucket: dict[str, dict[str, Array]] = {}
            for key, array in members.items():
                bucket, _, kind = key.partition("/")
                by_bucket.setdefault(bucket, {})[kind] = array
            for arrays in by_bucket.values():
                if group.startswith(ROWS_PREFIX):
                    self._put_rows(self._tables[name], arrays, step)
                elif group.startswith(WAITING_PREFIX):
                    self._add_waiting(name, RowPart(ids=arrays["ids"], values=arrays["values"]))
        if self._memory_limit and self._taken() > self._memory_limit and not self._warned_of_limit:
            self._warned_of_limit = True
            log.warning(
                "The rows that this server has been given take %s bytes; %s are meant for them. It keeps them, and "
                "takes no new ones. %s",
                f"{self._taken():,}",
                f"{self._memory_limit:,}",
                MORE_ROOM,
            )

    def _put_rows(self, table: Table, arrays: Mapping[str, Array], step: int) -> None:
        rows = TableRows(
            ids=arrays.get("ids", np.empty(0, np.int64)),
            values=arrays.get("values", np.empty((0, table.spec.width), np.float32)),
            slots=arrays.get("slots"),
            steps=arrays.get("steps"),
            seen=arrays.get("seen"),
            waiting_ids=arrays.get("waiting_ids"),
            waiting_counts=arrays.get("waiting_counts"),
            waiting_seen=arrays.get("waiting_seen"),
        )
        table.put(rows, step=step)

    def drop(self, mask: Mask) -> None:
        self._parts = {bucket: parts for bucket, parts in self._parts.items() if not mask[bucket]}
        for name, table in self._tables.items():
            for bucket in numbers(mask):
                table.delete(bucket)
            self._take_waiting(name, mask)


def _members(bucket: int, rows: TableRows) -> dict[str, Array]:
    arrays = {kind: getattr(rows, kind) for kind in _ARRAYS}
    return {f"{bucket}/{kind}": array for kind, array in arrays.items() if array is not None and array.size}


def _joined(parts: Sequence[RowPart]) -> RowPart:
    return RowPart(
        ids=np.concatenate([part.ids for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


_FINITE = (
    "A smaller learning rate, clipped gradients or other data may help. "
    "--max_bad_gradients=N lets the job go on without N such batches."
)


class NonFiniteGradient(UserError):
    """A gradient is no number."""

    @classmethod
    def of(cls, what: str, *, worker: str, allowed: int = 0) -> NonFiniteGradient:
        """`allowed`: so many batches with such gradients were passed over before."""
        before = f" {allowed:,} such batches were passed over (--max_bad_gradients)." if allowed else ""
        return cls(
            f"The gradient of {what} is not finite (NaN or infinity), in a batch of {worker}.{before}",
            hint=_FINITE,
        )


def count_by_bucket(ids: Iterable[Ids]) -> NDArray[np.int64]:
    """Returns the number of ids in each bucket."""
    counts = np.zeros(BUCKETS, np.int64)
    for given in ids:
        counts += np.bincount(buckets_of(given, BUCKETS), minlength=BUCKETS)
    return counts


def to_config(spec: TableSpec) -> ps_pb2.TableConfig:
    return ps_pb2.TableConfig(
        name=spec.name,
        width=spec.width,
        initializer=spec.initializer.kind,
        initializer_options=dict(spec.initializer.options),
        seed=spec.seed,
        admit_after=spec.admit_after,
        expire_after=spec.expire_after,
    )


def of_config(config: ps_pb2.TableConfig) -> TableSpec:
    """Raises `UserError` if there can be no such table."""
    return TableSpec(
        name=config.name,
        width=config.width,
        initializer=Initializer(kind=config.initializer, options=dict(config.initializer_options)),
        seed=config.seed,
        admit_after=config.admit_after,
        expire_after=config.expire_after,
    )


def check_names(specs: Sequence[TableSpec]) -> None:
    """Raises `UserError` if two different tables have one name."""
    seen: dict[str, TableSpec] = {}
    for spec in specs:
        known = seen.setdefault(spec.name, spec)
        if known is not spec:
            raise UserError(
                f"Two tables of the model are called {spec.name}.",
                hint="Layers that share rows are one layer, used twice; others need names of their own.",
            )


def _difference(known: TableSpec, asked: TableSpec) -> str:
    for field in ("width", "initializer", "seed", "admit_after", "expire_after"):
        if getattr(known, field) != getattr(asked, field):
            return f"has {field} {getattr(known, field)} on the servers, and is asked for with {getattr(asked, field)}"
    return "is there already"
