"""The epochs of a training by all-reduce, as two loops: a place for what is done once an epoch.

    for epoch in controller.epochs():
        for data, target in epoch:
            ...
        evaluate(model)

A batch counts as trained when the optimizer steps, or at the latest when the loop asks for the next one. The inner loop
ends when all workers have made the last step of the epoch, so that what follows it sees the same model in all of them.

Failure modes
    A worker that joins in the middle of an epoch begins with the rest of that epoch; its number tells which one that
    is. A worker that is drained must not run what follows the inner loop, since the epoch is not complete: it leaves
    the program by `Drained`. An inner loop that is left early (`break`) is an error: its batches would be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class BatchSource(Protocol):
    """The part of the controller that an epoch uses."""

    def epoch_batches(self, epoch: Epoch) -> Iterator[Any]: ...


class Epoch:
    """An epoch; iterated, it yields the batches that this worker computes. `number` counts from 0."""

    def __init__(self, source: BatchSource, number: int) -> None:
        self._source = source
        self.number = number

    def __iter__(self) -> Iterator[Any]:
        return self._source.epoch_batches(self)

    def __repr__(self) -> str:
        return f"Epoch({self.number})"
