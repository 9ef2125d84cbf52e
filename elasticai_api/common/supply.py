"""Prefetched shards of a worker: several in one call where it uses many, one at a time where it does not.

A call costs both sides about a millisecond. That is nothing to a program that works on a shard for a second, and half
of the time of one that is done with it in two milliseconds. So a worker asks for as many shards as it used in half a
second lately, and the master gives it fewer where others would go short. It asks when half of them are used up, beside
the program, which so has a quarter of a second in which a busy master is not felt. One quick half second is no
evidence: an input pipeline that fills its buffers when it starts is not fast yet. Neither is one slow half second, in
which the program saved its model.

Prefetched shards are not begun. They are given back when the program has not used it up in a while (it evaluates,
or waits for something), when it ends, and when the master says that other shards of this worker are not its own any
more, since then these may not be either.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from elasticai_api.common.master import FetchedShard

# A worker that is killed or drained holds at most the work of this long, and of half as long again, not begun.
AHEAD_SECONDS = 0.5
# So many of these are looked at; the second best counts.
_PARTS = 4
# Shards that were prefetched this long ago and not used are better given back to other workers.
IDLE_SECONDS = 2.0
# Bounds the size of an answer. A worker that uses more than that in half a second should have larger shards.
MOST_SHARDS = 256


class Supply:
    """The shards of one data set that lie ready in one worker. May be used by several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: deque[FetchedShard] = deque()
        self._put_at = 0.0
        self._epoch = 0
        # Shards taken, by the half second in which they were.
        self._taken: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def epoch(self) -> int:
        """Returns the epoch of the shard taken last; 0 before the first."""
        return self._epoch

    def wanted(self) -> int:
        """Returns the number of shards to request."""
        with self._lock:
            part = self._part()
            taken = sorted(self._taken.get(part - ago, 0) for ago in range(1, _PARTS + 1))
            return max(1, min(taken[-2], MOST_SHARDS))

    def runs_low(self) -> bool:
        """Whether to prefetch more: less than half of the wanted shards are left, and more than one is wanted."""
        wanted = self.wanted()
        return wanted > 1 and 2 * len(self._ready) <= wanted

    def put(self, fetched: Iterable[FetchedShard]) -> None:
        """These lie ready now."""
        with self._lock:
            self._ready.extend(fetched)
            self._put_at = self._clock()

    def take(self) -> FetchedShard | None:
        """Takes the prefetched shard that was fetched first, if there is one."""
        with self._lock:
            if not self._ready:
                return None
            part = self._part()
            if part not in self._taken:
                self._taken = {p: n for p, n in self._taken.items() if p >= part - _PARTS}
            self._taken[part] = self._taken.get(part, 0) + 1
            shard = self._ready.popleft()
            self._epoch = shard.epoch
            return shard

    def clear(self) -> list[int]:
        """Drops all shards, and returns them."""
        with self._lock:
            return self._clear()

    def clear_idle(self) -> list[int]:
        """Drops the shards that have not been used for a while, and returns them."""
        with self._lock:
            return self._clear() if self._clock() >= self._put_at + IDLE_SECONDS else []

    def _clear(self) -> list[int]:
        left = [shard.task.task_id for shard in self._ready]
        self._ready.clear()
        return left

    def _part(self) -> int:
        return int(self._clock() / AHEAD_SECONDS)
