"""The throughput of a job and of its workers, measured over a recent window."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Rate:
    """A sliding window of amounts: recent enough to show a change, long enough not to flicker."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window = window_seconds
        self._parts: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, now: float, amount: int) -> None:
        # Amounts of the same tenth of a second are one entry, so that the window stays small at any speed.
        if self._parts and now - self._parts[-1][0] < 0.1:
            then, before = self._parts[-1]
            self._parts[-1] = (then, before + amount)
        else:
            self._parts.append((now, amount))
        self._sum += amount
        self._drop(now)

    def per_second(self, now: float) -> float:
        self._drop(now)
        if not self._parts:
            return 0.0
        return self._sum / max(now - self._parts[0][0], 0.5)

    def _drop(self, now: float) -> None:
        while self._parts and now - self._parts[0][0] > self._window:
            self._sum -= self._parts.popleft()[1]


class WorkerRates:
    """The throughput of each worker. Of all-reduce there is none: its members advance together."""

    def __init__(self) -> None:
        self._rates: dict[str, Rate] = {}

    def add(self, worker: str, now: float, samples: int) -> None:
        self._rates.setdefault(worker, Rate()).add(now, samples)

    def per_second(self, worker: str, now: float) -> float | None:
        """Returns None for a node that has never reported samples."""
        rate = self._rates.get(worker)
        return None if rate is None else rate.per_second(now)

    def keep(self, workers: Iterable[str]) -> None:
        """Forgets all others: names are used once, and a job may have thousands in its life."""
        self._rates = {name: rate for name in workers if (rate := self._rates.get(name)) is not None}
