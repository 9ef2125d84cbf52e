"""Exponential backoff: how long to wait before the next attempt, after a number of failures in a row.

One formula for every retry of the project: the delay doubles with each failure, up to a cap, and is shortened at
random where many clients would otherwise retry at the same moment. It decides nothing else: the caller counts the
failures, waits, and knows when to give up.

Failure modes
    Failures without end: the delay stays at the cap; no count overflows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

# Beyond so many doublings every delay has reached any cap; a power of a float would overflow at 1024.
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays of `initial_seconds · 2^(failures - 1)`, at most `max_seconds`.

    With a `jitter` of j each delay is multiplied by a random factor from [1 - j, 1].
    """

    initial_seconds: float
    max_seconds: float
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.initial_seconds <= self.max_seconds:
            raise ValueError(f"backoff from {self.initial_seconds} s to {self.max_seconds} s")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter {self.jitter} is not in [0, 1]")

    def delay(self, failures: int, *, uniform: Callable[[], float] = random.random) -> float:
        """Returns the seconds to wait after so many failures in a row; 0 after none.

        `uniform` returns a random number in [0, 1).
        """
        if failures <= 0:
            return 0.0
        delay = min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return delay * (1.0 - self.jitter * uniform()) if self.jitter else delay
