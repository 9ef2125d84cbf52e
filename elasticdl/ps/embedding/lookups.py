"""The interface between the embedding layers of a model and the source of their rows.

A layer says which table it is of (`Declaration`), asks for the rows of a batch (`Lookups.find`), and hands back their
gradients (`add`); how is the framework's affair. The trainer sets the source of rows, and takes the
gradients when the batch is through.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.row_requests import RowGradients, RowSource, add_up
from elasticdl.ps.embedding.table import Ids, TableSpec
from elasticdl.ps.embedding.unique_ids import unique


@dataclass(frozen=True, kw_only=True)
class LookupResult:
    """The rows of a batch of ids: rows[inverse] are those of the batch, in its order."""

    ids: Ids
    inverse: Ids
    rows: Array


class RowPrefetch(Protocol):
    """A source of rows that may have fetched them already."""

    def take(self, table: str, ids: Ids) -> LookupResult | None: ...


class Lookups:
    """The lookups of all layers of one model, or of one layer outside of a job."""

    def __init__(self, source: RowSource) -> None:
        self.source = source
        # The copy that rows are looked up in; the model of now if it has no name.
        self.frozen = ""
        self.ahead: RowPrefetch | None = None
        self._lock = threading.Lock()
        self._parts: dict[str, list[RowGradients]] = {}

    def find(self, table: str, ids: Ids, *, create: bool) -> LookupResult:
        """The rows of ids, which may come more than once. `create`: for training, so that there are rows to train."""
        if create and self.ahead is not None:
            found = self.ahead.take(table, ids)
            if found is not None:
                return found
        different, inverse = unique(ids)
        rows = self.source.pull_rows({table: different}, frozen=self.frozen, create=create)
        return LookupResult(ids=different, inverse=inverse, rows=rows[table])

    def add(self, table: str, gradients: RowGradients) -> None:
        with self._lock:
            self._parts.setdefault(table, []).append(gradients)

    def forget(self) -> None:
        with self._lock:
            self._parts = {}

    def take(self) -> dict[str, RowGradients]:
        """The gradients that came since the last time, by table."""
        with self._lock:
            parts, self._parts = self._parts, {}
        return {table: add_up(some) for table, some in sorted(parts.items())}


# -- which layer has which table -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A layer's declaration of its table. `name` is its own; `table` that of one which it shares with others."""

    width: int
    name: str = ""
    table: str = ""
    initializer: Initializer = field(default_factory=Initializer)
    seed: int = 0
    admit_after: int = 1
    expire_after: int = 0

    def spec(self, default_name: str) -> TableSpec:
        return TableSpec(
            name=self.table or self.name or default_name,
            width=self.width,
            initializer=self.initializer,
            seed=self.seed,
            admit_after=self.admit_after,
            expire_after=self.expire_after,
        )


def declared_tables(layers: Sequence[tuple[str, Declaration]]) -> list[TableSpec]:
    """The table of each layer, given with the name it has if it was given none.

    Raises `UserError` if two would have one table without having asked for it, or do not agree on what it is.
    """
    specs = [declaration.spec(default) for default, declaration in layers]
    owners: dict[str, Declaration] = {}
    agreed: dict[str, TableSpec] = {}
    for spec, (_, declaration) in zip(specs, layers, strict=True):
        if not declaration.table:
            if spec.name in owners:
                raise UserError(
                    f"Two embedding layers have the name {spec.name}.",
                    hint=f"Give them different names; if both are to use one table, give both table={spec.name!r}.",
                )
            owners[spec.name] = declaration
        other = agreed.setdefault(spec.name, spec)
        if other != spec:
            raise UserError(
                f"Two embedding layers share the table {spec.name}, but one has {_differing(other, spec)} and the "
                f"other {_differing(spec, other)}.",
                hint="Give both the same options, or different tables.",
            )
    return specs


def _differing(one: TableSpec, other: TableSpec) -> str:
    keys = [key for key in vars(one) if getattr(one, key) != getattr(other, key)]
    return ", ".join(f"{key}={getattr(one, key)}" for key in keys)


def as_initializer(given: str | Mapping[str, Any] | Initializer) -> Initializer:
    """Makes an initializer by its kind, or by kind and options: "zeros", {"kind": "normal", "stddev": 0.01}."""
    if isinstance(given, Initializer):
        return given
    if isinstance(given, str):
        return Initializer(kind=given)
    if isinstance(given, Mapping) and "kind" in given:
        options = {str(key): value for key, value in given.items() if key != "kind"}
        return Initializer(kind=str(given["kind"]), options=options)
    raise UserError(
        f"An initializer is given as {given!r}.",
        hint='Write its kind, or kind and options: "uniform", {"kind": "normal", "stddev": 0.01}.',
    )
