"""Places in the course of a training, and the micro-batches that lie there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Place:
    """Between two steps: so many have been made, and the next begins with micro-batch `at` of the epoch's order."""

    step: int
    epoch: int
    at: int


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """The samples [start, end) at one place of an epoch's order, a part of one step."""

    step: int
    epoch: int
    place: int
    start: int
    end: int

    @property
    def samples(self) -> int:
        return self.end - self.start
