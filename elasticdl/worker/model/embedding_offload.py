"""Large ordinary embeddings of a model, moved to the parameter servers: which ones, and what their rows start as.

An ordinary embedding is an array like any other parameter: a worker pulls all of it for every batch, and pushes
gradients that are zero but for a few rows. Above a size that is too much. Its rows become those of a table then, with
the numbers from 0 on for ids, until the model is exported.

A table's rows are made from a seed, so what an embedding starts as must be something that a table can start as: numbers
drawn from a distribution that is seen in them (`fitted`). Numbers that come from somewhere, as those of a trained model
do, would be lost. They are told by not being like what the initializer draws (`drawn_from`), and, where a model can be
made once more, by being the same then.
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

# So many numbers tell a distribution well enough: their kurtosis is right to about 0.01.
_LOOKED_AT = 200_000
# The fourth moment of what is drawn evenly, by Gauss, and by Gauss within two deviations.
_UNIFORM, _NORMAL, _TRUNCATED = 1.8, 3.0, 2.3647
_NEAR = 0.06
_DEVIATION_WITHIN_TWO = 0.87962566103423978
# So many deviations off is no chance. By Gauss, that of a mean of n numbers is theirs by the root of n, that of their
# deviation by that of 2n, and that of their fourth moment the root of 24 / n.
_CHANCE = 6.0
# Embeddings that are named in one line.
_LISTED = 4


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of an embedding."""

    name: str
    rows: int
    width: int

    @property
    def mib(self) -> float:
        return self.rows * self.width * 4 / 2**20

    def __str__(self) -> str:
        return f"{self.name} ({self.rows:,} rows of {self.width}, {self.mib:,.0f} MiB)"


class Choices:
    """Which large embeddings of a model are moved and which are not. Each is told in the worker's log."""

    def __init__(self) -> None:
        self._moved: list[Size] = []
        self._left: dict[str, list[Size]] = {}

    def moved(self, size: Size) -> None:
        self._moved.append(size)
        log.info(
            "The embedding %s is moved to the parameter servers: a batch pulls and pushes only its rows.",
            size,
        )

    def left(self, size: Size, why: str) -> None:
        self._left.setdefault(why, []).append(size)
        log.warning("The embedding %s stays an ordinary one: %s.", size, why)

    def remarks(self) -> list[str]:
        """For the person who started the job, who does not read the logs of workers: a line for all that have been
        moved, and one for all that stay for the same reason.
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


def told_with_export(sizes: Iterable[Size]) -> list[str]:
    """For the person who started the job, who does not read the logs of workers: a line each."""
    return [
        f"embedding {size}: was moved to the parameter servers, and is an ordinary one here" for size in sizes
    ]


def fitted(values: Array) -> Initializer | None:
    """What these numbers have been drawn from, if it is something that tables know."""
    some = _some(values)
    mean, deviation = float(some.mean()), float(some.std())
    if not np.isfinite(mean) or not np.isfinite(deviation):
        return None
    if deviation == 0:
        return (
            Initializer(kind="zeros") if mean == 0 else Initializer(kind="constant", options={"value": mean})
        )
    fourth = _fourth(some)
    if abs(mean) < 4 * deviation / len(some) ** 0.5:
        mean = 0.0
    if abs(fourth - _UNIFORM) < _NEAR:
        half = deviation * 3**0.5
        return Initializer(kind="uniform", options={"low": mean - half, "high": mean + half})
    if abs(fourth - _NORMAL) < _NEAR:
        return Initializer(kind="normal", options={"mean": mean, "stddev": deviation})
    if abs(fourth - _TRUNCATED) < _NEAR:
        return Initializer(
            kind="truncated_normal", options={"mean": mean, "stddev": deviation / _DEVIATION_WITHIN_TWO}
        )
    return None


def drawn_from(wanted: Initializer, values: Array) -> bool:
    """Whether the numbers of an embedding can have been drawn by this. They are compared with those that a table's rows
    would start with, which is what becomes of them.
    """
    if wanted.kind in ("zeros", "constant"):
        return bool(np.isclose(values, wanted.mean).all())
    width = values.shape[1]
    table = LocalTables([TableSpec(name="drawn", width=width, initializer=wanted)])
    rows = table.pull_rows({"drawn": np.arange(1 + _LOOKED_AT // width)}, create=False)["drawn"]
    own, drawn = _some(values), _some(rows)
    error = _CHANCE * (1 / len(own) + 1 / len(drawn)) ** 0.5
    alike = (
        abs(own.mean() - drawn.mean()) < error * drawn.std()
        and abs(own.std() / drawn.std() - 1) < error / 2**0.5
        and abs(_fourth(own) - _fourth(drawn)) < error * 24**0.5
    )
    # Of a row that was set to zeros, say, nothing is seen in that; but nothing that is drawn is the same all along.
    uneven = width == 1 or not (values == values[:, :1]).all(axis=1).any()
    return bool(alike and uneven)


def _some(values: Array) -> Array:
    flat = values.reshape(-1)
    return np.asarray(flat[:: max(1, len(flat) // _LOOKED_AT)], np.float64)


def _fourth(values: Array) -> float:
    """The fourth moment."""
    return float(np.mean(((values - values.mean()) / values.std()) ** 4))
