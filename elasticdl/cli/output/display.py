"""Shows a running job: a live panel on a terminal, plain lines when the output goes elsewhere.

A display observes a job (`catalog/observer.py`) and selects what of its status is worth showing. It makes no decision
about the job.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from elasticdl.catalog.job import NodeUsage
from elasticdl.catalog.observer import JobObserver
from elasticdl.cli.output.node_rows import last_output, node_state
from elasticdl.cli.output.panel import StatusPanel, panel
from elasticdl.cli.output.progress_text import format_metrics, last_evaluation, one_line, without_effect
from elasticdl.errors import UserError
from elasticdl.jobs.audit import render
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, RunState

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.catalog.local.process_usage import ProcessUsage

__all__ = ["Display", "final_lines", "make_display", "node_state", "one_line", "panel", "print_final"]

# Plain lines: at least so long between two of them, unless there is news.
_LINE_SECONDS = 5.0
_ERROR = "error: "
_NEWS_SECONDS = 1.0
# How often the use of processors and memory is read.
_USAGE_SECONDS = 2.0


class Display(JobObserver):
    """Shows nothing. The base of those that do."""

    def __init__(self) -> None:
        self._remarked: set[str] = set()

    def _show_remarks(self, status: JobStatus) -> None:
        """Notes of workers about the model: each once."""
        for remark in status.remarks:
            if remark not in self._remarked:
                self._remarked.add(remark)
                self.note(remark)

    def close(self) -> None:
        """Leaves the terminal as it was. May be called twice."""


def make_display(*, quiet: bool) -> Display:
    if quiet:
        return Display()
    if "IPython" in sys.modules:
        from elasticdl.cli.output.notebook import NotebookDisplay, is_notebook

        if is_notebook():
            return NotebookDisplay()
    if sys.stdout.isatty():
        return _Panel()
    return _Lines()


class _Lines(Display):
    """Prints a line when something has changed, and every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0
        self._news: tuple[str, int] = ("", -1)
        self._evaluated: set[int] = set()
        self._nodes: dict[str, str] = {}

    def started(self, spec: JobSpec, location: str) -> None:
        self.note(f"Job {spec.job_name}: {location}")

    def progressed(self, status: JobStatus) -> None:
        self._show_nodes(status)
        self._show_remarks(status)
        # Not by their number: a job record omits some evaluations.
        for evaluation in status.evaluations:
            if evaluation.step not in self._evaluated:
                self.note(f"Evaluation metrics[step={evaluation.step}]: {format_metrics(evaluation.metrics)}")
        self._evaluated = {evaluation.step for evaluation in status.evaluations}
        news = (status.phase, status.epoch)
        quiet = time.monotonic() - self._last
        # Epochs of a small data set follow each other faster than a person reads.
        if quiet < (_LINE_SECONDS if news == self._news else _NEWS_SECONDS) and status.phase == self._news[0]:
            return
        self._news, self._last = news, time.monotonic()
        self.note(one_line(status))

    def _show_nodes(self, status: JobStatus) -> None:
        for node in status.nodes:
            state = node_state(node)
            if self._nodes.get(node.name) != state:
                self._nodes[node.name] = state
                said = last_output(node)
                self.note(f"{node.name}: {state}{f' ({said})' if said else ''}")

    def note(self, text: str) -> None:
        print(text, flush=True)

    def ended(self, status: JobStatus, logs: str) -> None:
        self._show_remarks(status)
        for line in final_lines(status, logs):
            self.note(line)


class _Panel(Display):
    """A progress display that stays in place while notes scroll by above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console: Console = Console()
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._started = False
        # A master that was restarted knows only since when it runs itself.
        self._first_start: float | None = None
        self._usage: ProcessUsage | None = None
        self._used: Mapping[str, NodeUsage] = {}
        self._used_at = 0.0

    def started(self, spec: JobSpec, location: str) -> None:
        from rich.spinner import Spinner

        self._console.print(f"[bold]Job {spec.job_name}[/bold]  [dim]{location}[/dim]", highlight=False)
        if spec.runs_here:
            from elasticdl.catalog.local.process_usage import ProcessUsage
            from elasticdl.jobs.job_store import JobStore

            # A job of another home is shown without its use.
            with contextlib.suppress(UserError):
                self._usage = ProcessUsage(JobStore().get(spec.job_name))
        self._live.update(Spinner("dots", text="waiting for the master to start"))
        self._live.start()
        self._started = True

    def progressed(self, status: JobStatus) -> None:
        self._show_remarks(status)
        if self._first_start is None and status.start_time:
            self._first_start = status.start_time
        self._read_usage()
        self._live.update(StatusPanel(status, usage=self._used, started=self._first_start))

    def _read_usage(self) -> None:
        if self._usage is not None and time.monotonic() - self._used_at >= _USAGE_SECONDS:
            self._used, self._used_at = self._usage.read(), time.monotonic()

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def ended(self, status: JobStatus, logs: str) -> None:
        self.close()
        self._show_remarks(status)
        print_final(self._console, status, logs)

    def close(self) -> None:
        if self._started:
            self._live.stop()
            self._started = False


def final_lines(status: JobStatus, logs: str) -> list[str]:
    """The end of a job: its audit, where its results are, and its outcome. An error is the last line of all."""
    lines = []
    failed = status.state is RunState.FAILED
    if status.message and not failed:
        lines.append(status.message)
    if status.audit is not None and not status.audit.is_empty:
        lines += ["", render(status.audit), ""]
    if without_effect(status):
        lines.append(without_effect(status))
    if status.evaluations:
        lines.append(f"Evaluation: {last_evaluation(status)}")
    if status.output:
        lines += status.output.splitlines()
    lines += status.tracking
    # For evaluations and predictions it is the checkpoint that the user has named.
    if status.checkpoint and status.kind == "train":
        lines.append(f"Checkpoint: {status.checkpoint}")
    lines.append(f"Job {status.job} has {status.state}. Logs: {logs}")
    if failed and status.traceback:
        lines += ["", status.traceback.rstrip()]
    if failed and status.message:
        lines.append(f"{_ERROR}{status.message}")
    return lines


def print_final(console: Console, status: JobStatus, logs: str) -> None:
    colour = {RunState.SUCCEEDED: "green", RunState.FAILED: "red"}.get(status.state, "yellow")
    for line in final_lines(status, logs):
        style = "red" if line.startswith(_ERROR) else None
        if line.startswith(f"Job {status.job} has "):
            style = f"bold {colour}"
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
