"""`elasticdl plan`: why each job has its size, and what would happen if one more were submitted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.group import UserPath
from elasticdl.errors import UserError

if TYPE_CHECKING:
    from elasticdl.scheduling.cluster import ClusterState
    from elasticdl.scheduling.decisions import Decision, Plan
    from elasticdl.scheduling.demand import JobDemand
    from elasticdl.simulator.forecast import Forecast, Outlook

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}
_PATH = UserPath(path_type=Path, dir_okay=False)


@click.command(context_settings=_CONTEXT)
@click.argument("cluster", type=UserPath(path_type=Path), required=False)
@click.option(
    "--what_if",
    type=_PATH,
    default=None,
    metavar="JOB.yaml",
    help="Job to submit now, in thought: see what changes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option(
    "--svg", type=_PATH, default=None, metavar="FILE", help="Draw the planned machines into this file."
)
@click.option(
    "--png", type=_PATH, default=None, metavar="FILE", help="Draw the planned machines into this file."
)
def plan(
    cluster: Path | None, what_if: Path | None, as_json: bool, svg: Path | None, png: Path | None
) -> None:
    """Explain the size of every job on a cluster, as the planner decides it.

    CLUSTER is a YAML file that describes machines and jobs, or the output of `kubectl get nodes,pods -A -o json`.
    Without it, the cluster of kubectl's current context is read. Nothing is changed: the plan is only shown.
    """
    from dataclasses import replace

    from elasticdl.scheduling.errors import SchedulingInputError
    from elasticdl.scheduling.planner import Planner
    from elasticdl.scheduling.projection import apply_plan
    from elasticdl.simulator.cluster_file import read_cluster, read_job
    from elasticdl.simulator.forecast import forecast
    from elasticdl.simulator.inputs import as_user_error

    if cluster is None:
        state = _read_live()
    elif cluster.exists():
        state = read_cluster(cluster)
    else:
        raise UserError(f"There is no file {cluster}.")
    extra = read_job(what_if) if what_if is not None else None
    try:
        planned_state = state
        if extra is not None:
            if any(job.key == extra.key for job in state.jobs):
                raise UserError(
                    f"{what_if}: the cluster has a job {extra.key} already.", hint="Give it another name."
                )
            planned_state = replace(state, jobs=(*state.jobs, extra))
        made = Planner().plan(planned_state)
        after = apply_plan(planned_state, made)
        forecasts = (forecast(state), forecast(state, extra)) if extra is not None else None
    except SchedulingInputError as error:
        raise as_user_error(error) from None
    if as_json:
        click.echo(json.dumps(_document(made, extra, forecasts), indent=1))
    else:
        _print_plan(made)
        if extra is not None and forecasts is not None:
            _print_forecast(extra, made, *forecasts)
    _draw(after, svg, png, quiet=as_json)


def _read_live() -> ClusterState:
    """Lists nodes, pods and job records of the configured cluster; writes nothing."""
    import asyncio

    from elasticdl.catalog.kubernetes.cluster_documents import ClusterDocuments, read_cluster_documents
    from elasticdl.catalog.kubernetes.cluster_state import state_from_documents
    from elasticdl.catalog.lookup import is_cluster_configured
    from elasticdl.platforms.kubernetes.client import Cluster

    if not is_cluster_configured():
        raise UserError(
            "No cluster is named, and none is configured here.",
            hint="Name a file that describes one, or set KUBECONFIG.",
        )

    async def read() -> ClusterDocuments:
        async with Cluster.connect() as cluster:
            return await read_cluster_documents(cluster)

    found = asyncio.run(read())
    return state_from_documents(found.documents, ranges=found.ranges)


def _word(decision: Decision) -> str:
    return type(decision).__name__.lower()


def _print_plan(made: Plan) -> None:
    if not made.decisions:
        click.echo("There are no jobs.")
        return
    if not sys.stdout.isatty():
        for decision in made.decisions:
            click.echo(f"{decision.job}: {_word(decision)}, {_change(decision)}. {decision.reason}")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("job", "decision", "size", "why", header_style="bold")
    for decision in made.decisions:
        table.add_row(decision.job, _word(decision), _change(decision), decision.reason)
    Console().print(table)


def _change(decision: Decision) -> str:
    if decision.size == decision.previous_size:
        return f"size {decision.size}"
    return f"size {decision.previous_size} → {decision.size}"


def _print_forecast(extra: JobDemand, made: Plan, before: Forecast, after: Forecast) -> None:
    outlook = after.outlooks[extra.key]
    if outlook.rejected:
        click.echo(f"What if: {extra.key} would be rejected: {outlook.rejected}")
        return
    start = "would not start" if outlook.starts_in is None else f"would train in {_span(outlook.starts_in)}"
    end = "" if outlook.ends_in is None else f" and be done in {_span(outlook.ends_in)}"
    click.echo(f"What if: {extra.key} {start}{end}.")
    shrinking = [one for one in made.decisions if one.size < one.previous_size]
    for decision in shrinking:
        click.echo(f"  {decision.job} would shrink from {decision.previous_size} to {decision.size}.")
    if not shrinking:
        click.echo("  No job would shrink.")
    for key, one in sorted(after.outlooks.items()):
        if key == extra.key:
            continue
        click.echo(f"  {key}: done {_ends(before.outlooks[key])} without it, {_ends(one)} with it.")


def _ends(outlook: Outlook) -> str:
    return "at an unknown time" if outlook.ends_in is None else f"in {_span(outlook.ends_in)}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _document(
    made: Plan, extra: JobDemand | None, forecasts: tuple[Forecast, Forecast] | None
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "decisions": [
            {
                "job": decision.job,
                "decision": _word(decision),
                "size": decision.size,
                "previous_size": decision.previous_size,
                "reason": decision.reason,
                "numbers": dict(decision.numbers),
                "placement": {role: dict(machines) for role, machines in decision.placement.items()},
                "victims": list(getattr(decision, "victims", ())),
            }
            for decision in made.decisions
        ],
        "reserved": dict(made.reserved),
    }
    if extra is not None and forecasts is not None:
        before, after = forecasts
        document["what_if"] = {
            "job": extra.key,
            "jobs": [
                {
                    "job": key,
                    "starts_in_seconds": one.starts_in,
                    "ends_in_seconds": one.ends_in,
                    "ends_in_seconds_without": before.outlooks[key].ends_in
                    if key in before.outlooks
                    else None,
                    "sizes": [list(size) for size in one.sizes],
                    "rejected": one.rejected,
                }
                for key, one in sorted(after.outlooks.items())
            ],
        }
    return document


def _draw(state: ClusterState, svg: Path | None, png: Path | None, *, quiet: bool) -> None:
    if svg is None and png is None:
        return
    from elasticdl.simulator.report.drawing import to_standalone_svg, write_png
    from elasticdl.simulator.report.machines import machine_chart

    drawing = machine_chart(state, title="Machines after the plan")
    if svg is not None:
        try:
            svg.write_text(to_standalone_svg(drawing), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{svg} cannot be written: {error.strerror}.") from None
    if png is not None:
        write_png([drawing], png)
    if not quiet:
        for path in (svg, png):
            if path is not None:
                click.echo(f"Picture: {path}")
