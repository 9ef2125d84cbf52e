"""The samples of a data set that could not be read: which, where they lie, why, and in which epochs.

A worker that meets corrupt data says so, and may say it twice, or another worker says it again after the
first one died, or the next epoch meets the same spot. Each sample is counted once. The ranges are kept
disjoint and sorted: what is already known is only marked for one more epoch, split where a new report covers
a part of it.

The list is bounded, and never shortened to fit: data that is damaged in more places than the bound cannot be
accounted for exactly, and is refused.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from elasticdl.master.ledger.shard_types import LedgerError

# Runs of epochs, first and last, in ascending order: one run for data that is bad and stays so.
Runs = tuple[tuple[int, int], ...]

MAX_RANGES = 10_000
# Reasons come from other people's libraries and are sometimes whole pages.
_MAX_TEXT = 500


@dataclass(frozen=True, kw_only=True)
class BadRange:
    """Samples [start, end) that were skipped in some epochs."""

    start: int
    end: int
    where: str
    reason: str
    epochs: Runs

    def in_epoch(self, epoch: int) -> bool:
        return any(first <= epoch <= last for first, last in self.epochs)

    def with_epochs(self, more: Runs) -> BadRange:
        """The same one if there is nothing new in these."""
        runs: list[tuple[int, int]] = []
        for first, last in sorted([*self.epochs, *more]):
            if runs and first <= runs[-1][1] + 1:
                runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
            else:
                runs.append((first, last))
        return self if tuple(runs) == self.epochs else replace(self, epochs=tuple(runs))


class BadRanges:
    """Disjoint ranges in ascending order."""

    def __init__(self, ranges: tuple[BadRange, ...] = ()) -> None:
        self._ranges = list(ranges)

    def __iter__(self) -> Iterator[BadRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def samples(self) -> int:
        """Returns the number of different samples that are bad in any epoch."""
        return sum(bad.end - bad.start for bad in self._ranges)

    def in_epoch(self, epoch: int) -> list[BadRange]:
        return [bad for bad in self._ranges if bad.in_epoch(epoch)]

    def by_epoch(self, epochs: int) -> list[int]:
        """Returns the number of bad samples in each of the first so many epochs."""
        changes = [0] * (epochs + 1)
        for bad in self._ranges:
            for first, last in bad.epochs:
                changes[min(first, epochs)] += bad.end - bad.start
                changes[min(last + 1, epochs)] -= bad.end - bad.start
        return list(accumulate(changes[:-1]))

    def mark(self, start: int, end: int, *, epoch: int, where: str, reason: str) -> int:
        """Returns how many of the samples were not known to be bad in any epoch."""
        return self._mark(start, end, epochs=((epoch, epoch),), where=where, reason=reason)

    def _mark(self, start: int, end: int, *, epochs: Runs, where: str, reason: str) -> int:
        first = bisect.bisect_right(self._ranges, start, key=lambda bad: bad.end)
        last = bisect.bisect_left(self._ranges, end, key=lambda bad: bad.start)
        found = BadRange(
            start=start, end=end, where=where[:_MAX_TEXT], reason=reason[:_MAX_TEXT], epochs=epochs
        )
        pieces: list[BadRange] = []
        new = 0
        at = start
        for known in self._ranges[first:last]:
            low, high = max(known.start, start), min(known.end, end)
            if at < low:
                pieces.append(replace(found, start=at, end=low))
                new += low - at
            marked = known.with_epochs(epochs)
            if marked is known:
                pieces.append(known)
            else:
                if known.start < low:
                    pieces.append(replace(known, end=low))
                pieces.append(replace(marked, start=low, end=high))
                if high < known.end:
                    pieces.append(replace(known, start=high))
            at = high
        if at < end:
            pieces.append(replace(found, start=at))
            new += end - at
        if len(self._ranges) + len(pieces) - (last - first) > MAX_RANGES:
            raise LedgerError(
                f"The data is corrupt in more than {MAX_RANGES} places, too many to account for; "
                f"the last one is samples [{start}, {end}) at {where}: {reason}"
            )
        self._ranges[first:last] = pieces
        return new

    def merge(self, other: BadRanges) -> None:
        """Takes over everything the other knows."""
        for bad in other:
            self._mark(bad.start, bad.end, epochs=bad.epochs, where=bad.where, reason=bad.reason)

    def to_json(self) -> list[Any]:
        return [[b.start, b.end, b.where, b.reason, [list(run) for run in b.epochs]] for b in self._ranges]

    @classmethod
    def from_json(cls, document: list[Any]) -> BadRanges:
        return cls(
            tuple(
                BadRange(
                    start=start,
                    end=end,
                    where=where,
                    reason=reason,
                    epochs=tuple((run[0], run[1]) for run in runs),
                )
                for start, end, where, reason, runs in document
            )
        )
