"""`elasticdl simulate`: replay a workload under scheduling policies and compare them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from elasticdl.cli.group import UserPath
from elasticdl.errors import UserError

if TYPE_CHECKING:
    from elasticdl.simulator.run_result import RunResult
    from elasticdl.simulator.workload import Workload

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}
_POLICIES = ("elasticdl", "edl", "fifo", "static", "tiresias")
# The figures of the terminal fit into lines; pictures of more than so many workloads would be a wall.
_PATH = UserPath(path_type=Path, dir_okay=False)


@click.command(context_settings=_CONTEXT)
@click.argument("workload")
@click.option(
    "--nodes",
    metavar="MACHINES",
    default=None,
    help="Machines: 16x4gpu, or 10x12cpu64Gi; several joined by commas.  [default: those of the workload]",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(_POLICIES),
    multiple=True,
    help="Policy to run; may be given several times.  [default: elasticdl]",
)
@click.option("--interval", type=float, default=None, metavar="SECONDS", help="Seconds between two plans.")
@click.option(
    "--resize_cost",
    type=float,
    default=None,
    metavar="SECONDS",
    help="How long a job stops when it is resized.",
)
@click.option(
    "--load",
    type=float,
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Divide arrival times by this factor: 2 brings the same jobs in half the time.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything that is random.")
@click.option(
    "--html", type=_PATH, default=None, metavar="FILE", help="Write a report with plots to this file."
)
@click.option("--png", type=_PATH, default=None, metavar="FILE", help="Write the plots to this file.")
@click.option(
    "--csv", "table", type=_PATH, default=None, metavar="FILE", help="Write one line per job there."
)
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
def simulate(
    workload: str,
    nodes: str | None,
    policies: tuple[str, ...],
    interval: float | None,
    resize_cost: float | None,
    load: float,
    seed: int,
    html: Path | None,
    png: Path | None,
    table: Path | None,
    quiet: bool,
) -> None:
    """Replay WORKLOAD on a virtual clock and report waiting, completion, utilisation and fairness.

    WORKLOAD is a CSV or YAML file of jobs, a folder of traces measured for the Pollux paper, one of its
    workload files, or a built-in scenario: edl-case1, edl-case2, two-jobs, nginx.
    """
    from elasticdl.scheduling.errors import SchedulingInputError
    from elasticdl.simulator.inputs import as_user_error, read_workloads
    from elasticdl.simulator.report.drawing import write_png
    from elasticdl.simulator.report.page import main_charts, write_page
    from elasticdl.simulator.report.tables import print_table, write_csv
    from elasticdl.simulator.workload import parse_machines

    _check("--interval", interval, above=0)
    _check("--resize_cost", resize_cost, above=-1)
    _check("--load", load, above=0)
    machines = parse_machines(nodes) if nodes else None
    chosen = tuple(dict.fromkeys(policies)) or ("elasticdl",)
    try:
        workloads = [
            one.with_rules(interval=interval, resize_cost=resize_cost).with_load(load)
            for one in read_workloads(workload, machines=machines)
        ]
        results = _run_all(workloads, chosen, seed, show_bar=not quiet and sys.stderr.isatty())
    except SchedulingInputError as error:
        raise as_user_error(error) from None
    print_table([result.summary() for result in results])
    _print_rejected(results)
    if html is not None:
        write_page(results, html, note=f"Seed {seed}, load {load:g}.")
        click.echo(f"Report: {html}")
    if png is not None:
        groups = [[r for r in results if r.workload == one.name] for one in workloads]
        write_png([drawing for group in groups for drawing in main_charts(group)], png)
        click.echo(f"Picture: {png}")
    if table is not None:
        write_csv(results, table)
        click.echo(f"Jobs: {table}")


def _check(flag: str, value: float | None, *, above: float) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value <= above:
        least = "greater than zero" if above == 0 else "at least zero"
        raise UserError(f"{flag} must be a finite number {least}, not {value:g}.")


def _run_all(
    workloads: list[Workload], policies: tuple[str, ...], seed: int, *, show_bar: bool
) -> list[RunResult]:
    from elasticdl.simulator.engine import Simulation
    from elasticdl.simulator.policies import make_policy

    results = []
    for workload in workloads:
        for name in policies:
            with _progress(f"{workload.name}, {name}", show_bar, workload.horizon) as update:
                run = Simulation(workload, make_policy(name), seed=seed)
                results.append(run.run(on_progress=update))
    return results


@contextmanager
def _progress(
    title: str, show: bool, horizon: float | None
) -> Iterator[Callable[[float, int, int], None] | None]:
    """A bar of jobs that are done, or of seconds where the simulation has a fixed end."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[at]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1.0, at="")

        def update(now: float, done: int, jobs: int) -> None:
            share = now / horizon if horizon else done / max(jobs, 1)
            progress.update(task, completed=share, at=f"{done} of {jobs} jobs, {now / 3600:.1f} h")

        yield update


def _print_rejected(results: list[RunResult]) -> None:
    for result in results:
        for job in result.jobs:
            if job.rejected:
                click.echo(
                    f"{result.workload} {result.policy}: {job.name} is rejected: {job.rejected}.", err=True
                )
