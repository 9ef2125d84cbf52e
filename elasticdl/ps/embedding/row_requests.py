"""Requests for rows of tables, and their gradients.

A `RowSource` (the client of parameter servers, tables of this process) receives different ids and returns rows in their
order. Gradients go back the same way, one sum for each id.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.tensors import Array, find_not_finite
from elasticdl.ps.embedding.table import Ids
from elasticdl.ps.embedding.unique_ids import sum_by, unique


@dataclass(frozen=True, kw_only=True)
class RowGradients:
    """The gradients of some rows of one table; every id comes once."""

    ids: Ids
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)


class RowSource(Protocol):
    """A source of rows, which several threads may use at once."""

    def pull_rows(
        self, wanted: Mapping[str, Ids], *, frozen: str = "", create: bool = True
    ) -> dict[str, Array]:
        """The rows of different ids by table: float32, an id a row.

        Of the model of now, or of a copy-on-write snapshot of that name. Without `create` an id that
        has no row stays without: its values are those that its row would start with.
        """


def add_up(parts: Sequence[RowGradients]) -> RowGradients:
    """The gradients of one table from several lookups, as one sum for each id."""
    if len(parts) == 1:
        return parts[0]
    ids, inverse = unique(np.concatenate([part.ids for part in parts]))
    values = np.concatenate([part.values for part in parts])
    return RowGradients(ids=ids, values=sum_by(inverse, values, len(ids)))


def rows_are_finite(gradients: Mapping[str, RowGradients]) -> bool:
    """Whether no gradient has a NaN or an infinity in it."""
    return find_not_finite({table: one.values for table, one in gradients.items()}) is None


def squared_norm(gradients: Iterable[Array]) -> float:
    """Returns the squared norm of all gradients together."""
    given = list(gradients)
    squares = sum(float(np.vdot(one, one)) for one in given)
    if math.isfinite(squares):
        return squares
    # Squares of numbers that float32 has may be too large for it.
    return sum(float(np.sum(np.square(one, dtype=np.float64))) for one in given)
