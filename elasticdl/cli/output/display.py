"""Shows a running job: a live panel on a terminal, plain lines when the output goes elsewhere.

A display observes a job (`catalog/observer.py`) and selects what of its status is worth showing. It makes no decision
about the job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from elasticdl.catalog.observer import JobObserver
from elasticdl.cli.output.server_table import FIGURES, server_figures
from elasticdl.jobs.audit import render
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, NodeReport, RunState, ServerReport

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# Plain lines: at least so long between two of them, unless there is news.
_LINE_SECONDS = 5.0
_ERROR = "error: "
_NEWS_SECONDS = 1.0


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
    """One line when something has changed, and every few seconds."""

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
                self.note(f"{node.name}: {state}")

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

    def started(self, spec: JobSpec, location: str) -> None:
        self._console.print(f"[bold]Job {spec.job_name}[/bold]  [dim]{location}[/dim]", highlight=False)
        self._live.start()
        self._started = True

    def progressed(self, status: JobStatus) -> None:
        self._show_remarks(status)
        self._live.update(panel(status))

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


# -- the parts, shared with `elasticdl jobs status` ----------------------------------------------------------


def panel(status: JobStatus, *, figures: bool = True) -> RenderableType:
    """Returns the status of a job as a block for a terminal; with `figures`, those of its parameter servers too."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    total, done = status.samples_desired, status.samples_done
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=total or 1, completed=done, width=40),
        Text(f"{100 * done / total:5.1f} %" if total else "", style="bold"),
        Text(time_left(status), style="dim"),
    )
    facts.add_row("epoch", f"{min(status.epoch + 1, status.epochs)} of {status.epochs}")
    facts.add_row("samples", f"{done:,} of {total:,}" if total else "…")
    facts.add_row("speed", f"{status.samples_per_second:,.0f} samples/s, step {status.step:,}")
    facts.add_row("loss", f"{status.loss:.5f} {sparkline(status.losses)}" if status.loss is not None else "…")
    if status.program != "command":
        facts.add_row("evaluation", last_evaluation(status) or "…")
    if without_effect(status):
        facts.add_row("note", Text(without_effect(status), style="yellow"))
    colour = {RunState.FAILED: "red", RunState.STOPPED: "yellow"}.get(status.state, "cyan")
    return Panel(
        Group(bar, facts, _node_table(status.nodes, status.servers if figures else ())),
        title=f"{status.job} · {status.phase}",
        border_style=colour,
        title_align="left",
        width=86,
    )


def _node_table(nodes: Sequence[NodeReport], servers: Sequence[ServerReport]) -> Table:
    """A line per node; for parameter servers, if there are figures, with the most important of them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    shown.add_column("node")
    shown.add_column("state")
    for title in ("shards", *(FIGURES if servers else ())):
        shown.add_column(title, justify="right", no_wrap=True)
    figures = {server.name: server_figures(server) for server in servers}
    for node in nodes:
        state = node_state(node)
        style = "green" if state == "working" else "red" if "ended" in state else "yellow"
        shards = str(node.leased_shards) if node.role in ("worker", "chief") else ""
        shown.add_row(node.name, Text(state, style=style), shards, *figures.get(node.name, ()))
    return shown


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(points: Sequence[tuple[int, float]], width: int = 30) -> str:
    """The course of the loss in one line."""
    values = [value for _, value in points if value == value and abs(value) != float("inf")]
    if len(values) < 2:
        return ""
    every = max(1, len(values) // width)
    means = [sum(values[i : i + every]) / len(values[i : i + every]) for i in range(0, len(values), every)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in means)


def node_state(node: NodeReport) -> str:
    ended = f"ended: {node.reason}" if node.reason else "ended"
    if node.reason == "stopped" and node.message:
        ended = f"{ended} ({node.message})"
    if node.phase == "pending":
        return f"waits: {node.message}" if node.message else "starting"
    if node.phase != "running":
        return ended
    if node.is_draining:
        # It still runs, so that its progress can be asked for.
        return ended if node.reason else "leaving"
    if node.unresponsive_since_seconds:
        since = _moment(node.unresponsive_since_seconds)
        return f"{'' if node.has_joined else 'starting, '}unresponsive since {since}"
    return "working" if node.has_joined else "starting"


def _moment(seconds: float) -> str:
    """With the date: it may have been yesterday."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def last_evaluation(status: JobStatus) -> str:
    newest = status.latest_evaluation
    if newest is None:
        return ""
    # `elasticdl evaluate` takes no step.
    at = f" (step {newest.step:,})" if status.kind == "train" else ""
    return f"{format_metrics(newest.metrics)}{at}"


def omitted_evaluations(status: JobStatus) -> str:
    """Returns a sentence about evaluations that are not listed. Empty if all are."""
    if not status.evaluations_omitted:
        return ""
    return (
        f"{status.evaluations_omitted:,} more evaluations are not listed: the job's record has room for the first, the "
        "newest, and those with the lowest and the highest value of each metric. The log of the master has them all."
    )


def format_metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in metrics.items())


def time_left(status: JobStatus) -> str:
    if status.remaining_seconds is None or status.state is not RunState.RUNNING:
        return ""
    minutes, seconds = divmod(int(status.remaining_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"


def one_line(status: JobStatus) -> str:
    total, done = status.samples_desired, status.samples_done
    working = sum(1 for node in status.nodes if node.role == "worker" and node_state(node) == "working")
    parts = [status.phase]
    # A job command may do without data of ours.
    if total or status.program != "command":
        parts += [
            f"epoch {min(status.epoch + 1, status.epochs)}/{status.epochs}",
            f"{done:,}/{total:,} samples",
            f"{status.samples_per_second:,.0f}/s",
            f"step {status.step:,}",
        ]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.5f}")
    parts.append(f"{working} of {status.desired_nodes.get('worker', 0)} workers")
    if time_left(status):
        parts.append(time_left(status))
    return " | ".join(parts)


def without_effect(status: JobStatus) -> str:
    """Returns a sentence about batches with non-finite gradients. Empty if there were none."""
    count = status.non_finite_batches
    if not count:
        return ""
    batches = "1 batch" if count == 1 else f"{count:,} batches"
    return f"{batches} had no effect: the gradients were not finite (--max_bad_gradients)."


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
