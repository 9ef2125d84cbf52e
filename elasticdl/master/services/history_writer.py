"""Writes the history of a job into its folder, beside everything else that the master does.

The history is for people: what they see of a job that is over, or was restarted. Nothing in the master reads it.

Failure modes
    The file cannot be written: one warning, and the job goes on without a history. A kill in the middle of a line:
    the reader passes the line over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from elasticdl.jobs.history.entries import Entry, parse_lines, to_line
from elasticdl.jobs.history.recorder import HistoryRecorder
from elasticdl.master.master import Master
from elasticdl.master.status import job_status

log = logging.getLogger("elasticdl.master")

_SECONDS = 0.5
# A status of a thousand workers takes milliseconds: at most this share of the master's time.
_SHARE = 0.01
# The maximal number of scalars of workers besides the loss.
_MOST_SCALARS = 20


class HistoryWriter:
    """A sink of scalars (`ScalarSink`) that remembers the newest ones."""

    def __init__(self, master: Master, path: Path) -> None:
        self._master = master
        self._path = path
        self._scalars: dict[str, float] = {}
        self._recorder = HistoryRecorder(_read(path))
        self._has_failed = False
        master.add_sink(self)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            # The status has these.
            is_known = name in ("loss", "samples_per_second", "workers") or name.startswith("evaluation/")
            if not is_known and (name in self._scalars or len(self._scalars) < _MOST_SCALARS):
                self._scalars[name] = value

    async def run(self) -> None:
        while not self._has_failed:
            began = time.perf_counter()
            self.record()
            took = time.perf_counter() - began
            await asyncio.sleep(max(_SECONDS, took / _SHARE))

    def record(self, *, last: bool = False) -> None:
        """Appends what is new."""
        if self._has_failed:
            return
        entries = self._recorder.observe(job_status(self._master, brief=True), self._scalars, last=last)
        if not entries:
            return
        try:
            with self._path.open("a") as file:
                file.write("".join(map(to_line, entries)))
        except OSError as error:
            self._has_failed = True
            log.warning("The history of the job cannot be written: %s: %s", self._path, error.strerror)


def _read(path: Path) -> list[Entry]:
    """Reads the history of previous masters, whose last line may be incomplete."""
    try:
        with path.open("r+") as file:
            text = file.read()
            if text and not text.endswith("\n"):
                file.write("\n")
    except OSError:
        return []
    return list(parse_lines(text.splitlines()))
