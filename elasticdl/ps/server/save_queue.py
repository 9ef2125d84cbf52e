"""The queue of files to save: one at a time, and the newest request cancels the earlier ones.

The master asks again when another server has failed, or after its own restart. Its earlier request is void then: the
folder is removed. So a running save stops, and a waiting one is cancelled by the next: however slow a disk is, calls do
not pile up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from elasticdl.ps.core.server_errors import CallCancelled

_Result = TypeVar("_Result")


class SaveQueue:
    """Safe to call from many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: object | None = None
        self._writing = False

    def save(
        self,
        write: Callable[[Callable[[], None]], _Result],
        *,
        wanted: Callable[[], bool | None] = lambda: True,
    ) -> _Result:
        """Calls `write` when no other save runs, and returns its result.

        `write` gets a function to call now and then: it raises `CallCancelled` if another file was requested, or the
        caller has gone (`wanted`). So does this method, if it has not begun to write.
        """
        mine = object()

        def check() -> None:
            if self._newest is not mine:
                raise CallCancelled("another file was requested meanwhile")
            if not wanted():
                raise CallCancelled("the caller has gone")

        if not wanted():
            raise CallCancelled("the caller has gone")
        with self._changed:
            self._newest = mine
            self._changed.notify_all()
            while self._writing:
                self._changed.wait()
                check()
            self._writing = True
        try:
            return write(check)
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
