"""`elasticdl jobs`: the jobs of this machine, running and finished."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.folder import JobFolder
from elasticdl.jobs.nearest import did_you_mean
from elasticdl.jobs.store import JobStore
from elasticdl.platforms.logs import LogReader

# How soon a new line of a followed log is seen.
_FOLLOW_SECONDS = 0.3
_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}


@click.group(context_settings=_CONTEXT)
def jobs() -> None:
    """Look at jobs, change their size, end them."""


@jobs.command("list", context_settings=_CONTEXT)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def list_jobs(as_json: bool) -> None:
    """All jobs of this machine, the oldest first."""
    rows: list[dict[str, Any]] = []
    for folder in JobStore().list():
        record = folder.record()
        rows.append(
            {
                "job": folder.name,
                "kind": record.kind,
                "state": folder.state(),
                "created": record.created,
                "ended": record.ended,
                "message": record.message,
            }
        )
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("There are no jobs.")
        return
    header = ("JOB", "KIND", "STATE", "STARTED", "TOOK")
    table = [
        (
            r["job"],
            r["kind"],
            r["state"],
            _moment(r["created"]),
            _duration(r["created"], r["ended"], r["state"]),
        )
        for r in rows
    ]
    _print_table(header, table)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as a JSON document.")
def status(job: str, as_json: bool) -> None:
    """The state of a job: progress, loss, evaluations, nodes."""
    from elasticdl.cli.control import current_status
    from elasticdl.cli.display import final_lines, node_state, one_line, panel

    folder = JobStore().get(job)
    document = current_status(folder)
    if as_json:
        click.echo(json.dumps(document, indent=1))
        return
    if "nodes" not in document:
        click.echo(f"Job {job}: {document['state']}. {document.get('message', '')}".rstrip())
        return
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(panel(document))
    else:
        click.echo(f"state: {document['state']}")
        click.echo(one_line(document))
        for evaluation in document["evaluations"]:
            click.echo(f"Evaluation metrics[step={evaluation['step']}]: {evaluation['metrics']}")
        for node in document["nodes"]:
            click.echo(f"{node['name']}: {node_state(node)}")
    if document["state"] not in ("running", "stopping"):
        click.echo("\n".join(final_lines(document, folder)))


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
def audit(job: str) -> None:
    """What became of every sample, epoch by epoch."""
    from elasticdl.cli.control import current_status
    from elasticdl.master.audit import Audit, render

    document = current_status(JobStore().get(job))
    if not document.get("audit"):
        raise UserError(f"Job {job} ended before there was anything to account for.")
    click.echo(render(Audit.from_json(document["audit"])))


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.argument("node", default="")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Only the last so many lines of each log."
)
def logs(job: str, node: str, follow: bool, tail: int | None) -> None:
    """The output of a job's nodes, each line with its node's name; of one NODE without."""
    folder = JobStore().get(job)
    if node and not folder.log_path(node).exists():
        names = sorted(path.stem for path in folder.logs_path.glob("[!.]*.log"))
        raise UserError(
            f"Job {job} has no log of {node!r}.{did_you_mean(node, names)}",
            hint=f"There are: {', '.join(names)}.",
        )
    followed: dict[Path, _Lines] = {}
    while True:
        # Looked at before the logs, so that what a job says last is not missed.
        running = folder.is_running()
        for path in [folder.log_path(node)] if node else sorted(folder.logs_path.glob("[!.]*.log")):
            first = path not in followed
            lines = followed.setdefault(path, _Lines(path)).read(last=not running or not follow)
            if first and tail is not None:
                lines = lines[len(lines) - min(tail, len(lines)) :]
            for line in lines:
                click.echo(line if node else f"{path.stem}: {line}")
        if not follow or not running:
            return
        time.sleep(_FOLLOW_SECONDS)


class _Lines:
    """The lines of a log that is being written: only whole ones, until it is over."""

    def __init__(self, path: Path) -> None:
        self._reader = LogReader(path)
        self._rest = b""

    def read(self, *, last: bool) -> list[str]:
        pieces = [self._rest]
        while piece := self._reader.read():
            pieces.append(piece)
        data = b"".join(pieces)
        end = len(data) if last else data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end].decode(errors="replace").splitlines()


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
@click.argument("node", default="")
def pid(job: str, node: str) -> None:
    """The process ids of a running job's nodes; of one NODE, only the number.

    \b
    kill -9 $(elasticdl jobs pid my-job worker-0)
    """
    from elasticdl.cli.processes import node_processes

    processes = node_processes(_running(job))
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
def scale(job: str, num_workers: int | None, num_ps: int | None) -> None:
    """Change the number of nodes of a running job."""
    from elasticdl.cli.control import MasterControl

    if num_workers is None and num_ps is None:
        raise UserError("Give the wanted size.", hint=f"elasticdl jobs scale {job} --num_workers=4")
    with MasterControl(_running(job)) as master:
        click.echo(f"Job {job} goes {master.scale(num_workers=num_workers, num_ps=num_ps)}.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job")
def stop(job: str) -> None:
    """Save a checkpoint and end a running job."""
    from elasticdl.cli.control import MasterControl

    folder = _running(job)
    with MasterControl(folder) as master:
        master.stop("elasticdl jobs stop")
    while folder.is_running():
        time.sleep(0.1)
    click.echo(f"Job {job}: {folder.state()}.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", nargs=-1, required=True)
def delete(job: tuple[str, ...]) -> None:
    """Remove the record and the logs of finished jobs. Checkpoints and models elsewhere stay."""
    store = JobStore()
    for name in job:
        store.delete(name)
        click.echo(f"Job {name} deleted.")


def _running(job: str) -> JobFolder:
    folder = JobStore().get(job)
    if not folder.is_running():
        raise UserError(f"Job {job} is not running: it has {folder.state()}.")
    return folder


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _duration(created: float, ended: float | None, state: str) -> str:
    if ended is None and state != "running":
        return "?"
    seconds = int((ended or time.time()) - created)
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
