"""`elasticdl jobs top`: the nodes of a job with what they use; live on a terminal, once elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from elasticdl.catalog.job import Job, NodeUsage
from elasticdl.cli.output.node_rows import node_state, state_style, usage_cells
from elasticdl.cli.output.progress_text import elapsed
from elasticdl.errors import UserError
from elasticdl.jobs.status import JobStatus

if TYPE_CHECKING:
    from rich.table import Table

_NONE = "-"


def top_rows(status: JobStatus, usage: Mapping[str, NodeUsage]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Returns the header and a row for each node that has not ended. GPU columns only if a node uses one."""
    columns = ["cpu", "memory", "samples/s"]
    if any(one.gpu_memory_bytes is not None for one in usage.values()):
        columns += ["gpu", "gpu memory"]
    nodes = {node.name: node for node in status.nodes if node.phase in ("pending", "running")}
    rows = []
    # The master is no node of its own report.
    for name in [*(name for name in usage if name not in nodes), *nodes]:
        node = nodes.get(name)
        cells = usage_cells([usage[name]] if name in usage else [])
        if node is not None and node.samples_per_second is not None:
            cells["samples/s"] = f"{node.samples_per_second:,.0f}"
        state = "working" if node is None else node_state(node)
        rows.append((name, state, *(cells.get(column, _NONE) for column in columns)))
    return ["NODE", "STATE", *(column.upper() for column in columns)], rows


async def show_top(job: Job, interval_seconds: float) -> None:
    """Returns when the job has ended; after one table where the output is no terminal."""
    # Rates are those between two reads.
    await job.usage()
    if not sys.stdout.isatty():
        await asyncio.sleep(interval_seconds)
        _print(await job.status(), await job.usage())
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False) as live:
        while await job.is_running():
            await asyncio.sleep(interval_seconds)
            try:
                status = await job.status()
            except UserError:
                # The master is about to come back, or the job has just ended.
                continue
            live.update(top_table(status, await job.usage()), refresh=True)


def top_table(status: JobStatus, usage: Mapping[str, NodeUsage]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    header, rows = top_rows(status, usage)
    rate = f"{status.samples_per_second:,.0f} samples/s"
    shown = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=Text(" · ".join(filter(None, (status.job, status.phase, elapsed(status), rate)))),
        title_justify="left",
        title_style="bold",
    )
    for number, name in enumerate(header):
        shown.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for name, state, *figures in rows:
        shown.add_row(name, Text(state, style=state_style(state)), *figures)
    return shown


def _print(status: JobStatus, usage: Mapping[str, NodeUsage]) -> None:
    header, rows = top_rows(status, usage)
    widths = [max(len(row[column]) for row in [tuple(header), *rows]) for column in range(len(header))]
    for row in [tuple(header), *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
