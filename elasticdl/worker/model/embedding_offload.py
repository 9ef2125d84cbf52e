"""Large ordinary embeddings of a model, moved to the parameter servers when the user asks for it.

An ordinary embedding is an array like any other parameter: a worker pulls all of it for every batch, and pushes
gradients that are zero but for a few rows. With `--move_embeddings_mib` its rows become those of a table, with the
numbers from 0 on for ids, until the model is exported.

The rows of a table are drawn from a seed by the initializer of the layer. Values that come from elsewhere, as those
of a pretrained model do, would be lost: an embedding whose values its initializer cannot have drawn stays an ordinary
one (`has_drawn_values`), and the reason is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.local_tables import LocalTables

log = logging.getLogger("elasticdl.worker")

# Values that are compared: enough for means and deviations that are right to about a percent.
_SAMPLED = 200_000
# Standard errors that chance may explain. That of a mean is the deviation by the root of n, that of a deviation by the
# root of 2n.
_CHANCE = 6.0
# Embeddings that are named in one line.
_LISTED = 4


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of an embedding."""

    name: str
    rows: int
    width: int

    @property
    def mib(self) -> float:
        return self.rows * self.width * 4 / 2**20

    def __str__(self) -> str:
        return f"{self.name} ({self.rows:,} rows of {self.width}, {self.mib:,.0f} MiB)"


class OffloadReport:
    """The large embeddings of a model that are moved, and those that are not. The worker logs each."""

    def __init__(self) -> None:
        self._moved: list[Size] = []
        self._left: dict[str, list[Size]] = {}

    def moved(self, size: Size) -> None:
        self._moved.append(size)
        log.info(
            "Moving the embedding %s to the parameter servers: a batch pulls and pushes only its rows",
            size,
        )

    def left(self, size: Size, why: str) -> None:
        self._left.setdefault(why, []).append(size)
        log.warning("Not moving the embedding %s to the parameter servers: %s", size, why)

    def remarks(self) -> list[str]:
        """Returns lines for the terminal and the status of the job: one for all that were moved, and one for all that
        stay for the same reason.
        """
        lines = [f"Moved to the parameter servers: {_listed(self._moved)}."] if self._moved else []
        return lines + [
            f"Not moved to the parameter servers: {_listed(sizes)}: {why}."
            for why, sizes in self._left.items()
        ]


def _listed(sizes: list[Size]) -> str:
    some = ", ".join(str(size) for size in sizes[:_LISTED])
    more = f" and {len(sizes) - _LISTED} more" if len(sizes) > _LISTED else ""
    return f"{'embedding' if len(sizes) == 1 else 'embeddings'} {some}{more}"


def export_remarks(sizes: Iterable[Size]) -> list[str]:
    """Returns a line for each, for the terminal."""
    return [
        f"embedding {size}: was moved to the parameter servers, and is an ordinary one here" for size in sizes
    ]


def has_drawn_values(initializer: Initializer, values: Array) -> bool:
    """Whether the initializer can have drawn these values: by mean and deviation, compared with rows of a table."""
    if initializer.kind in ("zeros", "constant"):
        return bool(np.isclose(values, initializer.mean).all())
    width = values.shape[1]
    table = LocalTables([TableSpec(name="drawn", width=width, initializer=initializer)])
    rows = table.pull_rows({"drawn": np.arange(1 + _SAMPLED // width)}, create=False)["drawn"]
    own, drawn = _sample(values), _sample(rows)
    error = _CHANCE * (1 / len(own) + 1 / len(drawn)) ** 0.5
    is_alike = (
        abs(own.mean() - drawn.mean()) < error * drawn.std()
        and abs(own.std() / drawn.std() - 1) < error / 2**0.5
    )
    # A single row that was set, to zeros for instance, changes neither; but no drawn row has one value throughout.
    has_constant_row = width > 1 and (values == values[:, :1]).all(axis=1).any()
    return bool(is_alike and not has_constant_row)


def _sample(values: Array) -> Array:
    flat = values.reshape(-1)
    return np.asarray(flat[:: max(1, len(flat) // _SAMPLED)], np.float64)
