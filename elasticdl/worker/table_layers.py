"""The embedding layers of a model that have tables, and where their rows are at the moment.

On parameter servers, the rows come by a client (`join`); without any, they are in this worker (`keep`), and trained
here. Until one or the other is called every layer has rows of its own, with no other reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.ps.embedding.lookups import Lookups, declared_tables
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.local_tables import LocalTables


class Tables:
    def __init__(self, layers: Sequence[tuple[str, Any]]) -> None:
        """The layers with the names that they have if they were given none."""
        by_layer = declared_tables([(name, layer.declaration) for name, layer in layers])
        # With the name of the table of each.
        self.layers: list[tuple[str, Any]] = [
            (spec.name, layer) for spec, (_, layer) in zip(by_layer, layers, strict=True)
        ]
        self.specs: list[TableSpec] = list({spec.name: spec for spec in by_layer}.values())
        self.lookups: Lookups | None = None
        self._own: LocalTables | None = None

    def __bool__(self) -> bool:
        return bool(self.specs)

    def join(self, lookups: Lookups) -> None:
        self.lookups, self._own = lookups, None
        for table, layer in self.layers:
            layer.join(table, lookups)

    def keep(self, own: LocalTables) -> None:
        """The rows are in this process."""
        self.join(Lookups(own))
        self._own = own

    def forget(self) -> None:
        """Gradients of a batch that is begun again."""
        if self.lookups is not None:
            self.lookups.forget()

    def take(self) -> dict[str, RowGradients]:
        return {} if self.lookups is None else self.lookups.take()

    def update(self, gradients: Mapping[str, RowGradients], learning_rate: float) -> None:
        """A step of the rows that are kept here."""
        if self._own is not None:
            self._own.apply(gradients, learning_rate=learning_rate)

    @property
    def own(self) -> LocalTables | None:
        """The tables kept here, if they are."""
        return self._own
