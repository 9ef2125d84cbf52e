"""Writes the stacks of all threads to the log of a worker that makes no progress, before the master kills it.

They show the line where a hanging data loader or a deadlocked program waits. The stacks are written by a
thread in C, so that a program that holds the interpreter's lock is seen as well.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable

# The part of the master's stall timeout after which stacks are logged: before the kill.
_FRACTION = 0.8
# To start the timer again costs a thread; not after every short batch.
_RESTART_SECONDS = 1.0


class StallWatch:
    """Watches the process for stalls. `stall_seconds`: the shortest stall timeout, or 0 for none."""

    def __init__(self, stall_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = _FRACTION * stall_seconds
        self._clock = clock
        self._started_at: float | None = None

    def restart(self) -> None:
        """There was progress."""
        now = self._clock()
        if self._seconds <= 0 or (self._started_at is not None and now - self._started_at < _RESTART_SECONDS):
            return
        self._started_at = now
        faulthandler.dump_traceback_later(self._seconds, file=sys.stderr)

    def stop(self) -> None:
        """Stops the watch: there is no more work, and no progress to be expected."""
        if self._started_at is not None:
            self._started_at = None
            faulthandler.cancel_dump_traceback_later()
