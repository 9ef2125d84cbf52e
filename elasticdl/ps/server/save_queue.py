"""Which of the files that a server is asked to write it writes: one at a time, and of several the one asked for last.

The master asks again when another server has failed, or when it has been away. What it asked for before is of no use
then: it has removed the folder, and listens to nobody any more. So whoever writes stops, and whoever waits for that
goes away when somebody else comes to wait: however slow a disk is, calls do not pile up before it.
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
        """Has `write` called when nobody else writes, and returns what it returns.

        It is given what it has to call now and then: that raises `CallCancelled` if it is to stop, since somebody
        has asked for another file, or the caller has gone (`wanted`). So does this, if it is not even begun.
        """
        mine = object()

        def check() -> None:
            if self._newest is not mine:
                raise CallCancelled("another file was asked for meanwhile")
            if not wanted():
                raise CallCancelled("whoever asked for the file has gone")

        if not wanted():
            raise CallCancelled("whoever asked for the file has gone")
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
