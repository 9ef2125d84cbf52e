"""The shape of a metric whose parts add up, and its two kinds: those made of counts, and means.

Their states are integers throughout (see `summation.py` for the sums), so that merging them is exact.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.worker.scoring.summation import ExactSum

Array = NDArray[Any]


class Metric(abc.ABC):
    """A value over samples, kept as sums. `name` is its default name."""

    name: str

    @abc.abstractmethod
    def update(self, labels: Any, predictions: Any) -> None:
        """Adds a batch. `ValueError` says which shapes do not fit."""

    @abc.abstractmethod
    def states(self) -> tuple[Array, ...]:
        """Copies of the sums; always of the same shapes, also before the first batch."""

    @abc.abstractmethod
    def load(self, states: Sequence[Array]) -> None:
        """Takes on states, e.g. those of several workers added up."""

    @abc.abstractmethod
    def result(self) -> float:
        """The value; NaN where it has none, e.g. over no samples."""

    @abc.abstractmethod
    def reset(self) -> None: ...


class Counts(Metric):
    """A metric made of counts."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self._counts = np.zeros(shape, np.int64)

    def states(self) -> tuple[Array, ...]:
        return (self._counts.copy(),)

    def load(self, states: Sequence[Array]) -> None:
        (counts,) = states
        self._counts = np.array(counts, np.int64)

    def reset(self) -> None:
        self._counts = np.zeros_like(self._counts)


class Averaged(Metric):
    """A metric that is the mean of one number a sample (or an element of it)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reset()

    def add(self, values: Array, count: int) -> None:
        self._sum.add(values)
        self._count += count

    def states(self) -> tuple[Array, ...]:
        return self._sum.state(), np.array([self._count], np.int64)

    def load(self, states: Sequence[Array]) -> None:
        total, count = states
        self._sum.load(total)
        self._count = int(count[0])

    def result(self) -> float:
        return self._sum.over(self._count)

    def reset(self) -> None:
        self._sum = ExactSum()
        self._count = 0
