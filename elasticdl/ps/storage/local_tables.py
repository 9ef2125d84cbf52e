"""Tables in this process: for jobs without parameter servers, for notebooks, and for tests.

The same tables and the same rules as on a server, without anything in between. Lookups are never of a copy-on-write
snapshot: the only reader is also the one who trains, and does not do both at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.table_files import STEP, TABLES, SavedTables, describe, write_table
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import Optimizer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import Ids, Table, TableRows, TableSpec


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
                self._tables[spec.name] = Table(spec, self._optimizer, buckets=BUCKETS)
            elif table.spec != spec:
                raise UserError(
                    f"The table {spec.name} is there already, as {table.spec}, and not as {spec}."
                )

    def use_optimizer(self, optimizer: Optimizer) -> None:
        """Updates are this optimizer's from now on; slots of another kind are reset."""
        before, self._optimizer, self._trains = self._tables, optimizer, True
        self._tables = {}
        self.declare(table.spec for table in before.values())
        for name, table in before.items():
            for bucket in range(table.buckets):
                rows = table.export(bucket)
                fits = table.slot_names == self._tables[name].slot_names
                self._tables[name].put(rows if fits else replace(rows, slots=None, steps=None))

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
        """Makes one step: updates each of these rows. Rows that were not looked up for too long expire."""
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
            table.expire(self.step, buckets=table.due(self.step))

    # -- outside of this process ------------------------------------------------------------------------------

    def rows(self, name: str) -> tuple[Ids, NDArray[np.float32]]:
        """All rows of a table, in the order of their ids."""
        table = self._table(name)
        parts = [table.export(bucket) for bucket in range(table.buckets)]
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids)
        return ids[order], np.concatenate([part.values for part in parts])[order]

    def put(self, name: str, ids: Ids, values: NDArray[np.float32]) -> None:
        """Takes rows in; their slots are reset."""
        rows = TableRows(ids=ids, values=np.ascontiguousarray(values, np.float32), slots=None)
        self._table(name).put(rows, step=self.step)

    def write(self, file: ArrayFileWriter) -> dict[str, Any]:
        """Into a file of a checkpoint, and returns what belongs to its attributes."""
        for table in self._tables.values():
            write_table(file, table, table.freeze(), buckets=range(table.buckets))
        described = {name: describe(table).as_json() for name, table in self._tables.items()}
        return {TABLES: described, STEP: self.step}

    def restore(self, checkpoints: Sequence[Sequence[Path]], *, ignored: Collection[str] = ()) -> None:
        """Restores the tables from the files of a checkpoint and of all that it needs, oldest first. Raises `UserError`
        if they are of another model; some tables there may be unknown here. Slots of another optimizer are omitted.
        """
        with SavedTables(checkpoints) as saved:
            problems = [
                f"the table {name} is missing" for name in self._tables if name not in saved.descriptions
            ]
            problems += [
                f"the table {name} is not in this model"
                for name in saved.descriptions
                if name not in self._tables and name not in ignored
            ]
            if problems:
                raise UserError(f"The tables are others: {'; '.join(problems)}.")
            self.step = max(self.step, saved.step)
            for table in self._tables.values():
                saved.restore(table, step=self.step)

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            raise UserError(
                f"There is no table {name}.", hint=f"There are: {', '.join(self._tables) or 'none'}."
            )
        return table
