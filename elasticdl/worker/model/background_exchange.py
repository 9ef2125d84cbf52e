"""Runs one operation at a time in the background: the push of the last batch, and the pull of values after it.

What it raises is raised where the next thing is given, or where the end is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Exchange:
    """`give` and `settle` are for one thread."""

    def __init__(self, *, nudge: Callable[[], None] = lambda: None) -> None:
        """`nudge` is called after an error, to wake a thread that waits for something else."""
        self._nudge = nudge
        self._changed = threading.Condition()
        self._work: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def give(self, work: Callable[[], None]) -> None:
        """Has something done, when what was given before is done."""
        self.settle()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
            self._thread.start()
        with self._changed:
            self._work = work
            self._changed.notify_all()

    def settle(self) -> None:
        """Waits until nothing is being done any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._work is None)
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Waits for the work in progress, and ignores its outcome."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work is not None or self._closed)
                work = self._work
            if work is None:
                return
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:  # noqa: BLE001 - raised where the work was given
                error = raised
            with self._changed:
                self._work, self._error = None, error
                self._changed.notify_all()
            if error is not None:
                self._nudge()
