"""The output of `elasticdl jobs status`: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

import click

from elasticdl.cli.output.display import final_lines
from elasticdl.cli.output.node_rows import node_state
from elasticdl.cli.output.panel import panel
from elasticdl.cli.output.progress_text import omitted_evaluations, one_line, without_effect
from elasticdl.cli.output.server_table import server_lines, server_table
from elasticdl.jobs.status import JobStatus, RunState

_UNDER_WAY = (RunState.RUNNING, RunState.STOPPING)


def print_status(status: JobStatus, logs: str) -> None:
    """`logs`: where a person finds them."""
    if not status.has_report:
        words = filter(None, (status.message, status.trouble))
        click.echo(" ".join([f"Job {status.job}: {status.state}.", *words]))
        return
    if sys.stdout.isatty():
        _print_panel(status)
    else:
        _print_lines(status)
    if status.trouble:
        click.echo(status.trouble)
    if status.state not in _UNDER_WAY:
        click.echo("\n".join(final_lines(status, logs)))


def _print_panel(status: JobStatus) -> None:
    from rich.console import Console

    console = Console()
    # All figures of the servers follow.
    console.print(panel(status, figures=False))
    if status.servers:
        console.print(server_table(status.servers))
    for remark in status.remarks:
        console.print(remark, highlight=False, markup=False)


def _print_lines(status: JobStatus) -> None:
    click.echo(f"state: {status.state}")
    click.echo(one_line(status))
    # The final lines of a finished job have both.
    under_way = status.state in _UNDER_WAY
    if status.message and under_way:
        click.echo(status.message)
    for evaluation in status.evaluations:
        click.echo(f"Evaluation metrics[step={evaluation.step}]: {dict(evaluation.metrics)}")
    if omitted_evaluations(status):
        click.echo(omitted_evaluations(status))
    if without_effect(status) and under_way:
        click.echo(without_effect(status))
    for node in status.nodes:
        click.echo(f"{node.name}: {node_state(node)}")
    for line in server_lines(status.servers):
        click.echo(line)
    for remark in status.remarks:
        click.echo(remark)
