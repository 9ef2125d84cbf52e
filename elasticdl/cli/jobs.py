"""`elasticdl jobs`: the jobs of this machine and of the cluster, running and finished.

A job is looked for on this machine first. The cluster is the one that kubectl would talk to; if none is configured,
only this machine is looked at.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from elasticdl.cli.finding import all_jobs, find_job
from elasticdl.cli.job_view import UNKNOWN, JobView
from elasticdl.cli.output.notes import note
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _namespaced(command: _Command) -> _Command:
    return click.option(
        "--namespace", default=None, metavar="NAME", help="Look on the cluster, in this namespace."
    )(command)


@click.group(context_settings=_CONTEXT)
def jobs() -> None:
    """Look at jobs, change their size, end them."""


@jobs.command("list", context_settings=_CONTEXT)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@_namespaced
def list_jobs(as_json: bool, namespace: str | None) -> None:
    """All jobs of this machine and of the cluster's namespace, the oldest first."""
    found, problem = all_jobs(namespace)
    if problem:
        note(problem)
    for job in found:
        if job.state == UNKNOWN:
            note(f"Job {job.job}: {job.message}")
    rows = [asdict(job) for job in found]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("There are no jobs.")
        return
    header = ("JOB", "KIND", "STATE", "STARTED", "TOOK", "PLACE")
    table = [
        (
            r["job"],
            r["kind"],
            r["state"],
            _moment(r["created"]),
            _duration(r["created"], r["ended"], r["state"]),
            r["place"],
        )
        for r in rows
    ]
    _print_table(header, table)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as a JSON document.")
@_namespaced
def status(job: str, as_json: bool, namespace: str | None) -> None:
    """The state of a job: progress, loss, evaluations, nodes, and how its parameter servers do."""
    from elasticdl.cli.output.display import (
        final_lines,
        left_out,
        node_state,
        one_line,
        panel,
        without_effect,
    )
    from elasticdl.cli.output.server_table import server_lines, server_table

    view = find_job(job, namespace)
    document = view.status()
    if as_json:
        click.echo(json.dumps(document, indent=1))
        return
    if "nodes" not in document:
        words = (document.get("message"), document.get("trouble"))
        click.echo(" ".join([f"Job {job}: {document['state']}.", *filter(None, words)]))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        # All figures of the servers follow.
        console.print(panel(document, figures=False))
        if document.get("servers"):
            console.print(server_table(document["servers"]))
        for remark in document.get("remarks") or ():
            console.print(remark, highlight=False, markup=False)
    else:
        click.echo(f"state: {document['state']}")
        click.echo(one_line(document))
        # Of one that is over it follows, with all the rest.
        if document.get("message") and document["state"] in ("running", "stopping"):
            click.echo(document["message"])
        for evaluation in document["evaluations"]:
            click.echo(f"Evaluation metrics[step={evaluation['step']}]: {evaluation['metrics']}")
        if left_out(document):
            click.echo(left_out(document))
        if without_effect(document) and document["state"] in ("running", "stopping"):
            click.echo(without_effect(document))
        for node in document["nodes"]:
            click.echo(f"{node['name']}: {node_state(node)}")
        for line in server_lines(document.get("servers") or []):
            click.echo(line)
        for remark in document.get("remarks") or ():
            click.echo(remark)
    if document.get("trouble"):
        click.echo(document["trouble"])
    if document["state"] not in ("running", "stopping"):
        click.echo("\n".join(final_lines({"job": job, **document}, view.logs_place)))


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Serve them here, at /metrics.")
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@_namespaced
def metrics(job: str, port: int | None, bind: str, namespace: str | None) -> None:
    """The figures of a job in Prometheus' text format: printed, or served until interrupted."""
    from elasticdl.dashboard.job_metrics import job_metrics

    view = find_job(job, namespace)
    if port is None:
        click.echo(job_metrics(view.status()), nl=False)
        return
    from elasticdl.dashboard.metrics_server import MetricsServer

    server = MetricsServer(lambda: job_metrics(view.status()), bind=bind, port=port)
    click.echo(f"Metrics of job {job} at {server.address} until interrupted.")
    # That is how it is meant to end.
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@_namespaced
def audit(job: str, namespace: str | None) -> None:
    """What became of every sample, epoch by epoch."""
    from elasticdl.cli.output.display import without_effect
    from elasticdl.master.ledger.audit import Audit, render

    document = find_job(job, namespace).status()
    if not document.get("audit"):
        raise UserError(f"Job {job} ended before there was anything to account for.")
    click.echo(render(Audit.from_json(document["audit"])))
    if without_effect(document):
        click.echo(without_effect(document))


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.argument("node", default="")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Only the last so many lines of each log."
)
@_namespaced
def logs(job: str, node: str, follow: bool, tail: int | None, namespace: str | None) -> None:
    """The output of a job's nodes, each line with its node's name; of one NODE without."""
    view = find_job(job, namespace)
    names = view.log_names()
    # Those of a job that has just begun are on their way.
    if not names and not (follow and view.is_running()):
        raise UserError(f"There are no logs of job {job}.", hint=view.without_logs)
    if node and node not in names:
        raise UserError(
            f"Job {job} has no log of {node!r}.{did_you_mean(node, names)}",
            hint=f"There are: {', '.join(names)}.",
        )
    for line in view.log_lines(node, follow=follow, tail=tail):
        click.echo(line.text if node else f"{line.node}: {line.text}")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.argument("node", default="")
def pid(job: str, node: str) -> None:
    """The process ids of a running job's nodes on this machine; of one NODE, only the number.

    \b
    kill -9 $(elasticdl jobs pid my-job worker-0)
    """
    from elasticdl.cli.processes import node_processes
    from elasticdl.jobs.job_store import JobStore

    folder = JobStore().get(job)
    if not folder.is_running():
        raise UserError(f"Job {job} is not running: it has {folder.state()}.")
    processes = node_processes(folder)
    if not node:
        for name, number in sorted(processes.items()):
            click.echo(f"{name} {number}")
        return
    if node not in processes:
        raise UserError(
            f"Job {job} has no running node {node!r}.{did_you_mean(node, processes)}",
            hint=f"There are: {', '.join(sorted(processes))}.",
        )
    click.echo(processes[node])


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.option("--num_workers", type=int, default=None, help="How many workers the job shall have.")
@click.option("--num_ps", type=int, default=None, help="How many parameter servers the job shall have.")
@_namespaced
def scale(job: str, num_workers: int | None, num_ps: int | None, namespace: str | None) -> None:
    """Change the number of nodes of a running job."""
    if num_workers is None and num_ps is None:
        raise UserError("Give the wanted size.", hint=f"elasticdl jobs scale {job} --num_workers=4")
    view = _running(job, namespace)
    click.echo(f"Job {job} goes {view.scale(num_workers=num_workers, num_ps=num_ps)}.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@_namespaced
def stop(job: str, namespace: str | None) -> None:
    """Save a checkpoint and end a running job."""
    view = _running(job, namespace)
    view.stop("elasticdl jobs stop")
    click.echo(f"Job {job}: {view.summary().state}.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@_namespaced
def resume(job: str, namespace: str | None) -> None:
    """Bring back the master of a job on the cluster, if its pod is gone."""
    from elasticdl.cli.cluster_jobs import ClusterJob

    view = find_job(job, namespace)
    if not isinstance(view, ClusterJob):
        raise UserError(
            f"Job {job} ran on this machine: it ended with the command that ran it.",
            hint=view.without_master,
        )
    click.echo(f"Job {job}: {view.resume()}.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", nargs=-1, required=True)
@_namespaced
def delete(job: tuple[str, ...], namespace: str | None) -> None:
    """Remove all that is left of finished jobs: record, logs, pods. Checkpoints and models elsewhere stay."""
    for name in job:
        find_job(name, namespace).delete()
        click.echo(f"Job {name} deleted.")


def _running(job: str, namespace: str | None) -> JobView:
    view = find_job(job, namespace)
    if not view.is_running():
        state = view.summary().state
        if state == "interrupted":
            raise UserError(f"Job {job} is interrupted: there is no master to ask.", hint=view.without_master)
        raise UserError(f"Job {job} is not running: it has {state}.")
    return view


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else UNKNOWN


def _duration(created: float, ended: float | None, state: str) -> str:
    if ended is None and state in ("interrupted", UNKNOWN):
        return UNKNOWN
    # The cluster's clock may be ahead of ours.
    seconds = max(0, int((ended or time.time()) - created))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{seconds:02d}s" if hours else f"{minutes}m{seconds:02d}s"


def _print_table(header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    colours = {
        "running": "cyan",
        "succeeded": "green",
        "failed": "red",
        "stopped": "yellow",
        "interrupted": "red",
    }
    for row in [header, *rows]:
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        if sys.stdout.isatty() and row is not header:
            cells[2] = click.style(cells[2], fg=colours.get(str(row[2])))
        click.echo("  ".join(cells).rstrip())
