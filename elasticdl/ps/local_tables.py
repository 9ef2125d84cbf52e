"""Tables in this process: for jobs without parameter servers, for notebooks, and for tests.

The same tables and the same rules as on a server, without anything in between. Nothing is ever frozen: whoever looks
rows up is also the one who trains them, and does not do both at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from elasticdl.jobs.errors import UserError
from elasticdl.ps.optimizers import Optimizer
from elasticdl.ps.rows import RowGradients
from elasticdl.ps.table import Ids, Table, TableRows, TableSpec
from elasticdl.ps.tensors import Array

# The group of a snapshot that holds a table: arrays named after the fields of `TableRows`.
TABLE_PREFIX = "table:"
# Locks are taken a bucket at a time. Nobody moves buckets of these.
_BUCKETS = 16
_FIELDS = tuple(field.name for field in fields(TableRows))


class LocalTables:
    """A `RowSource` that can also be trained. May be asked by several threads at once."""

    def __init__(self, specs: Iterable[TableSpec] = (), *, optimizer: Optimizer | None = None) -> None:
        """Without an optimizer rows can be looked up, and not be trained."""
        self._optimizer = optimizer or Optimizer("torch", "sgd", {})
        self._trains = optimizer is not None
        self._tables: dict[str, Table] = {}
        # The step of the last update: by it rows expire.
        self.step = 0
        self.declare(specs)

    def declare(self, specs: Iterable[TableSpec]) -> None:
        """Makes tables that are not there yet. Raises `UserError` if one is there and differs."""
        for spec in specs:
            table = self._tables.get(spec.name)
            if table is None:
                self._tables[spec.name] = Table(spec, self._optimizer, buckets=_BUCKETS)
            elif table.spec != spec:
                raise UserError(
                    f"The table {spec.name} is there already, as {table.spec}, and not as {spec}."
                )

    def use_optimizer(self, optimizer: Optimizer) -> None:
        """Updates are this optimizer's from now on; slots start anew where they are not of its kind."""
        before, self._optimizer, self._trains = self._tables, optimizer, True
        self._tables = {}
        self.declare(table.spec for table in before.values())
        for name, table in before.items():
            for bucket in range(table.buckets):
                rows = table.export(bucket)
                self.put(name, rows, slot_names=table.slot_names)

    def __len__(self) -> int:
        """Rows in all tables."""
        return sum(len(table) for table in self._tables.values())

    @property
    def specs(self) -> list[TableSpec]:
        return [table.spec for table in self._tables.values()]

    def pull_rows(
        self, wanted: Mapping[str, Ids], *, frozen: str = "", create: bool = True
    ) -> dict[str, Array]:
        return {
            name: self._table(name).gather(ids, step=self.step, create=create) for name, ids in wanted.items()
        }

    def apply(
        self,
        gradients: Mapping[str, RowGradients],
        *,
        learning_rate: float,
        clip_norm: float = 0.0,
        clip_value: float = 0.0,
    ) -> None:
        """One step: an update of each of these rows. Rows that nobody has wanted for too long are forgotten."""
        if gradients and not self._trains:
            raise ValueError("there is no optimizer")
        self.step += 1
        for name, rows in gradients.items():
            self._table(name).update(
                rows.ids,
                rows.values,
                learning_rate=learning_rate,
                step=self.step,
                clip_norm=clip_norm,
                clip_value=clip_value,
            )
        for table in self._tables.values():
            # Going through all rows is not worth it for a few: they are forgotten somewhat late instead.
            lasts = table.spec.expire_after
            if lasts and self.step % max(1, lasts // 4) == 0:
                table.expire(self.step)

    # -- as arrays -------------------------------------------------------------------------------------------

    def rows(self, name: str) -> TableRows:
        """All rows of a table, in the order of their ids."""
        table = self._table(name)
        buckets = [table.export(bucket) for bucket in range(table.buckets)]
        return sort_rows(join_rows(buckets))

    def groups(self) -> dict[str, dict[str, Array]]:
        """All tables, for a snapshot."""
        return {
            f"{TABLE_PREFIX}{name}": {
                "step": np.array(self.step),
                **_present(self.rows(name)),
            }
            for name in self._tables
        }

    def load(self, groups: Mapping[str, Mapping[str, Array]]) -> None:
        """The tables of a snapshot, into those that have been declared. Others are of another model."""
        for name, table in self._tables.items():
            arrays = dict(groups.get(f"{TABLE_PREFIX}{name}", {}))
            if not arrays:
                raise UserError(f"The table {name} is missing.")
            self.step = max(self.step, int(arrays.pop("step", np.array(0))))
            rows = TableRows(**{key: value for key, value in arrays.items() if key in _FIELDS})
            if rows.values.shape[1:] != (table.spec.width,):
                raise UserError(
                    f"The table {name} has rows of {rows.values.shape[1]} numbers, this model's {table.spec.width}."
                )
            self.put(name, rows, slot_names=table.slot_names)

    def put(self, name: str, rows: TableRows, *, slot_names: Sequence[str] = ()) -> None:
        """Takes rows in. Their slots start anew where they are not of the optimizer's kind."""
        table = self._table(name)
        counts = self._optimizer.rule.counts_steps
        of_its_kind = list(slot_names) == list(table.slot_names) and counts == (rows.steps is not None)
        if not of_its_kind or rows.slots.shape[1] != len(table.slot_names):
            fresh = np.asarray(self._optimizer.rule.slot_initial, np.float32).reshape(1, -1, 1)
            slots = np.broadcast_to(fresh, (len(rows.ids), fresh.shape[1], table.spec.width))
            rows = TableRows(
                ids=rows.ids,
                values=rows.values,
                slots=np.ascontiguousarray(slots),
                steps=np.zeros(len(rows.ids), np.uint32) if counts else None,
                seen=rows.seen,
                waiting_ids=rows.waiting_ids,
                waiting_counts=rows.waiting_counts,
                waiting_seen=rows.waiting_seen,
            )
        table.put(rows)

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            raise UserError(
                f"There is no table {name}.", hint=f"There are: {', '.join(self._tables) or 'none'}."
            )
        return table


def join_rows(parts: Sequence[TableRows]) -> TableRows:
    """Rows of one table that were kept apart."""
    joined: dict[str, Any] = {}
    for key in _FIELDS:
        arrays = [getattr(part, key) for part in parts]
        joined[key] = None if any(array is None for array in arrays) else np.concatenate(arrays)
    return TableRows(**joined)


def sort_rows(rows: TableRows) -> TableRows:
    order = np.argsort(rows.ids, kind="stable")
    own = ("ids", "values", "slots", "steps", "seen")
    return TableRows(**{key: array[order] if key in own else array for key, array in _present(rows).items()})


def _present(rows: TableRows) -> dict[str, Array]:
    return {key: getattr(rows, key) for key in _FIELDS if getattr(rows, key) is not None}
