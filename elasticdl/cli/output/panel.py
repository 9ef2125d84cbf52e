"""The status of a job as a block for a terminal of any width from 40 columns on.

Names and states of nodes are never cut off: where the terminal is narrow, columns of figures are left out, the
least important first, and long states take several lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from elasticdl.catalog.job import NodeUsage
from elasticdl.cli.output.node_rows import (
    NodeRow,
    ended_nodes,
    has_failures,
    node_rows,
    node_state,
    state_style,
    used_in_total,
)
from elasticdl.cli.output.progress_text import (
    elapsed,
    last_evaluation,
    sparkline,
    time_left,
    waiting_for,
    without_effect,
)
from elasticdl.jobs.status import JobStatus, RunState

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

# Wider lines are hard to read.
_WIDEST = 100
# Borders and padding of the block.
_FRAME = 4
# Between two columns: padding, and the blank that rich's box has in place of a line. It has one at either edge, too.
_PADDING = 2
_COLUMN_GAP = _PADDING + 1
_EDGES = 2
# Lines of the block beside the rows of nodes.
_OTHER_LINES = 13
_FEWEST_ROWS = 6
# Figures by importance, and as they stand beside each other.
_BY_IMPORTANCE = (
    "samples/s",
    "cpu",
    "memory",
    "gpu",
    "rows",
    "pushes/s",
    "pull p95",
    "push p95",
    "gpu memory",
    "shards",
)
_IN_ORDER = (
    "shards",
    "samples/s",
    "cpu",
    "memory",
    "gpu",
    "gpu memory",
    "rows",
    "pushes/s",
    "pull p95",
    "push p95",
)
# A state takes several lines before a column of figures is left out for it.
_STATE_WIDTH = 24


class StatusPanel:
    """`figures`: with those of parameter servers. `usage`: what the nodes use. `started`: when the job has, if that is
    known better than from its master, which may have been restarted.
    """

    def __init__(
        self,
        status: JobStatus,
        *,
        figures: bool = True,
        usage: Mapping[str, NodeUsage] | None = None,
        started: float | None = None,
    ) -> None:
        self._status = status
        self._figures = figures
        self._usage = usage or {}
        self._started = started

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        status = self._status
        width = min(options.max_width, _WIDEST)
        room = width - _FRAME
        took = elapsed(status, self._started)
        title = " · ".join(filter(None, (status.job, status.phase, took)))
        # In front of and behind a title are two more characters each.
        is_titled = len(title) <= room - 2
        rows = node_rows(
            status,
            self._usage,
            figures=self._figures,
            most_rows=max(_FEWEST_ROWS, console.size.height - _OTHER_LINES),
        )
        parts: list[RenderableType] = []
        if not is_titled:
            parts.append(Text(" · ".join(filter(None, (status.phase, took))), style="bold"))
        parts += [self._bar(), self._facts(room)]
        if waits := waiting_for(status):
            parts.append(Text(f"waiting for {waits}", style="yellow"))
        if rows:
            parts.append(_table(rows, room))
        if ended := ended_nodes(status):
            parts.append(Text(ended, style="red" if has_failures(status) else "dim"))
        colour = {RunState.FAILED: "red", RunState.STOPPED: "yellow"}.get(status.state, "cyan")
        yield Panel(
            Group(*parts),
            title=Text(title if is_titled else status.job),
            title_align="left",
            border_style=colour,
            width=width,
        )

    def _bar(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        status = self._status
        total, done = status.samples_desired, status.samples_done
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_column(no_wrap=True)
        bar.add_row(
            ProgressBar(total=total or 1, completed=done),
            Text(f"{100 * done / total:5.1f} %" if total else "", style="bold"),
            Text(time_left(status), style="dim"),
        )
        return bar

    def _facts(self, room: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        status = self._status
        total, done = status.samples_desired, status.samples_done
        facts = Table.grid(padding=(0, 2))
        facts.add_column(no_wrap=True)
        facts.add_column()
        facts.add_row("epoch", f"{min(status.epoch + 1, status.epochs)} of {status.epochs}")
        facts.add_row("samples", f"{done:,} of {total:,}" if total else "…")
        facts.add_row("speed", f"{status.samples_per_second:,.0f} samples/s, step {status.step:,}")
        if status.loss is None:
            facts.add_row("loss", "…")
        else:
            points = min(30, max(8, room - 24))
            facts.add_row("loss", f"{status.loss:.5f} {sparkline(status.losses, points)}")
        if status.program != "command":
            facts.add_row("evaluation", last_evaluation(status) or "…")
        if used := used_in_total(self._usage):
            facts.add_row("using", used)
        if without_effect(status):
            facts.add_row("note", Text(without_effect(status), style="yellow"))
        return facts


def _table(rows: Sequence[NodeRow], room: int) -> Table:
    """A line per row, with as many figures as there is room for."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    longest_state = max(len(row.state) for row in rows)
    state_width = max(len("state"), min(longest_state, _STATE_WIDTH))
    names_width = max(len("node"), *(len(row.name) for row in rows))
    left = room - _EDGES - names_width - _COLUMN_GAP - state_width - _PADDING
    chosen: set[str] = set()
    for title in _BY_IMPORTANCE:
        texts = [row.cells[title] for row in rows if title in row.cells]
        if not texts:
            continue
        needed = max(len(text) for text in (title, *texts)) + _COLUMN_GAP
        if needed > left:
            # Less important columns do not take its place: they would come and go with their figures.
            break
        chosen.add(title)
        left -= needed
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, _PADDING, 0, 0), pad_edge=False)
    shown.add_column("node", no_wrap=True)
    shown.add_column("state", overflow="fold", min_width=state_width)
    titles = [title for title in _IN_ORDER if title in chosen]
    for title in titles:
        shown.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [row.cells.get(title, "") for title in titles]
        shown.add_row(row.name, Text(row.state, style=state_style(row.state)), *cells)
    return shown


def panel(
    status: JobStatus, *, figures: bool = True, usage: Mapping[str, NodeUsage] | None = None
) -> RenderableType:
    """Returns the status of a job as a block for a terminal; with `figures`, those of its parameter servers too."""
    return StatusPanel(status, figures=figures, usage=usage)


__all__ = ["StatusPanel", "node_state", "panel"]
