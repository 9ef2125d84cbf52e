"""Watches of one kind of object, with the time of each change, for measurements that start and end with changes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.processes import DEADLINE, Stuck

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of an object, and when it was received, by time.monotonic(). `kind`: ADDED, MODIFIED or DELETED."""

    seconds: float
    kind: str
    document: Document

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


class Watched:
    """All changes of the objects at one path of the API since it was opened."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._more = threading.Condition()

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str) -> Iterator[Watched]:
        watched = cls()
        process = subprocess.Popen(
            ["kubectl", "get", "--raw", f"{path}?watch=true"], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=watched._read, args=(process,), daemon=True).start()
        try:
            yield watched
        finally:
            process.kill()
            process.wait()

    def mark(self) -> int:
        """Returns the position of the next change."""
        with self._more:
            return len(self._changes)

    def changes(self) -> list[Change]:
        """Returns all changes so far."""
        with self._more:
            return list(self._changes)

    def wait(self, found: Callable[[Change], bool], what: str, *, since: int = 0) -> Change:
        """Returns the first change of that kind."""
        end, at = time.monotonic() + DEADLINE, since
        with self._more:
            while True:
                for change in self._changes[at:]:
                    if found(change):
                        return change
                at = len(self._changes)
                if not self._more.wait(end - time.monotonic()):
                    raise Stuck(f"{what}: not within {DEADLINE:.0f} s")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.monotonic()
            event = json.loads(line)
            with self._more:
                self._changes.append(Change(seconds=now, kind=event["type"], document=event["object"]))
                self._more.notify_all()
