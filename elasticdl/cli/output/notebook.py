"""Shows a running job in a notebook: one output below the cell, replaced as the job progresses.

By IPython's own display handles rather than by widgets, so that every front end can show it, and a notebook that is
saved keeps the last state. The job runs in a thread, so the output is updated while other cells run.
"""

from __future__ import annotations

import sys
from collections import deque
from importlib import import_module
from typing import Any

from rich.console import Group, RenderableType
from rich.jupyter import JupyterMixin
from rich.text import Text

from elasticdl.cli.output.display import Display, final_lines, panel
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus

# The number of lines that stay visible; all of them are in the logs.
_NOTES = 10


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class StatusView(JupyterMixin):
    """The status of a job as an output of a notebook, with lines below it."""

    def __init__(self, status: JobStatus | None, lines: tuple[str, ...] = ()) -> None:
        self._status = status
        self._lines = lines

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [panel(self._status)] if self._status is not None else []
        return Group(*parts, *map(Text, self._lines))

    def mime_bundle(self) -> dict[str, str]:
        # The mixin declares it for renderables with another protocol than `__rich__`.
        bundle: dict[str, str] = self._repr_mimebundle_(include=(), exclude=())  # type: ignore[misc]
        return bundle


class NotebookDisplay(Display):
    def __init__(self) -> None:
        super().__init__()
        self._status: JobStatus | None = None
        self._notes: deque[str] = deque(maxlen=_NOTES)
        # Now and not with the first news, which come when another cell may be running: it belongs below this one.
        self._handle: Any = import_module("IPython.display").display(StatusView(None), display_id=True)

    def started(self, spec: JobSpec, location: str) -> None:
        self.note(f"Job {spec.job_name}: {location}")

    def progressed(self, status: JobStatus) -> None:
        self._status = status
        self._show_remarks(status)
        self._update()

    def note(self, text: str) -> None:
        self._notes.append(text)
        self._update()

    def ended(self, status: JobStatus, logs: str) -> None:
        self._status = status
        self._notes.extend(final_lines(status, logs))
        self._update()

    def _update(self) -> None:
        self._handle.update(StatusView(self._status, tuple(self._notes)))
