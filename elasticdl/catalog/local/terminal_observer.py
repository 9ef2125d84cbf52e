"""Protects the host of a job from the loss of its terminal.

When a terminal is closed, writing to it fails with EIO, perhaps before SIGHUP is handled. What an observer prints must
not end the job, which is to save its checkpoint: the output goes nowhere from then on.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from elasticdl.catalog.local.signals import leave_terminal
from elasticdl.catalog.observer import JobObserver
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus


class TerminalObserver(JobObserver):
    """Passes everything on to another observer, whose errors of a closed terminal it ignores."""

    def __init__(self, observer: JobObserver) -> None:
        self._observer = observer

    def note(self, text: str) -> None:
        with _closed_terminal_ignored():
            self._observer.note(text)

    def started(self, spec: JobSpec, location: str) -> None:
        with _closed_terminal_ignored():
            self._observer.started(spec, location)

    def progressed(self, status: JobStatus) -> None:
        with _closed_terminal_ignored():
            self._observer.progressed(status)

    def ended(self, status: JobStatus, logs: str) -> None:
        with _closed_terminal_ignored():
            self._observer.ended(status, logs)


@contextlib.contextmanager
def _closed_terminal_ignored() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        leave_terminal()
