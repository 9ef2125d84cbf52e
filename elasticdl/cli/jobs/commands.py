"""`elasticdl jobs`: the jobs of this machine and of the cluster, running and finished.

A job is looked for on this machine first. The cluster is the one that kubectl would talk to; if none is configured,
only this machine is searched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from elasticdl.catalog.job import Job
from elasticdl.catalog.lookup import JobList, JobLookup
from elasticdl.cli.jobs.attach import attach, resume, wait
from elasticdl.cli.jobs.moments import DURATION, MOMENT
from elasticdl.cli.jobs.names import complete_jobs, complete_nodes, complete_running_nodes
from elasticdl.cli.output.job_list import job_document, print_jobs, select_jobs
from elasticdl.cli.output.notes import NoteObserver, note
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def _namespaced(command: _Command) -> _Command:
    return click.option(
        "--namespace", default="", metavar="NAME", help="Look on the cluster, in this namespace."
    )(command)


def _with_job(name: str, namespace: str, action: Callable[[Job], Awaitable[_Result]]) -> _Result:
    """Finds the job and does something with it."""

    async def main() -> _Result:
        async with JobLookup(namespace=namespace, observer=NoteObserver()) as lookup:
            return await action(await lookup.find(name))

    return asyncio.run(main())


def _status(job: str, namespace: str) -> JobStatus:
    return _with_job(job, namespace, lambda found: found.status())


@click.group(context_settings=_CONTEXT)
def jobs() -> None:
    """Look at jobs, change their size, end them."""


for _command in (attach, wait, resume):
    jobs.add_command(_command)


@jobs.command("list", context_settings=_CONTEXT)
@click.option(
    "--state",
    "states",
    type=click.Choice([str(state) for state in RunState]),
    multiple=True,
    help="Only jobs in this state; may be given several times.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["train", "evaluate", "predict"]),
    multiple=True,
    help="Only jobs of this kind; may be given several times.",
)
@click.option(
    "--since", type=MOMENT, metavar="TIME", help="Only jobs started since then: 12h, 7d, or a date and time."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@_namespaced
def list_jobs(
    states: tuple[str, ...], kinds: tuple[str, ...], since: float | None, as_json: bool, namespace: str
) -> None:
    """All jobs of this machine and of the cluster's namespace, the newest first.

    PROGRESS is the share of the samples of all epochs, METRIC the first metric of the newest evaluation.
    """

    async def main() -> JobList:
        async with JobLookup(namespace=namespace, observer=NoteObserver()) as lookup:
            return await lookup.list()

    found = asyncio.run(main())
    if found.problem:
        note(found.problem)
    for job in found.jobs:
        if job.state is None:
            note(f"Job {job.job}: {job.message}")
    selected = select_jobs(found.jobs, states=states, kinds=kinds, since=since)
    if as_json:
        click.echo(json.dumps([job_document(job) for job in selected], indent=1))
    elif not selected:
        click.echo("There are no such jobs." if found.jobs else "There are no jobs.")
    else:
        print_jobs(selected)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as a JSON document.")
@_namespaced
def status(job: str, as_json: bool, namespace: str) -> None:
    """The state of a job: progress, loss, evaluations, nodes, and how its parameter servers do."""
    from elasticdl.cli.output.job_status import print_status

    async def read(found: Job) -> tuple[JobStatus, str, str, str]:
        status = await found.status()
        return status, found.logs_location, found.resume_hint(status.state), found.namespace

    current, logs, hint, place = _with_job(job, namespace, read)
    if as_json:
        click.echo(json.dumps(current.to_json(), indent=1))
    else:
        print_status(current, logs)
        _print_link(job, place)
        if hint:
            note(hint)


def _print_link(job: str, namespace: str) -> None:
    """Prints the link to the page of the job, or on a terminal how to get one."""
    from elasticdl.dashboard.registry import DashboardRegistry

    if link := DashboardRegistry().link(job, namespace=namespace):
        click.echo(f"Page: {link}")
    elif sys.stdout.isatty():
        note("`elasticdl dashboard` shows jobs in a browser.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Serve them here, at /metrics.")
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@_namespaced
def metrics(job: str, port: int | None, bind: str, namespace: str) -> None:
    """The figures of a job in Prometheus' text format: printed, or served until interrupted."""
    from elasticdl.dashboard.job_metrics import job_metrics

    def read() -> str:
        return job_metrics(_status(job, namespace))

    if port is None:
        click.echo(read(), nl=False)
        return
    from elasticdl.dashboard.metrics_server import MetricsServer

    async def exists(found: Job) -> None:
        """Accepts any job that is found: its master may be unreachable for a moment."""

    _with_job(job, namespace, exists)
    server = MetricsServer(read, bind=bind, port=port)
    click.echo(f"Metrics of job {job} at {server.address} until interrupted.")
    # The usual end.
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@_namespaced
def audit(job: str, namespace: str) -> None:
    """Lists what became of every sample, epoch by epoch."""
    from elasticdl.cli.output.progress_text import without_effect
    from elasticdl.jobs.audit import render

    current = _status(job, namespace)
    if current.audit is None:
        raise UserError(f"Job {job} ended before there was anything to account for.")
    click.echo(render(current.audit))
    if without_effect(current):
        click.echo(without_effect(current))


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@click.argument("node", default="", shell_complete=complete_nodes)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the job ends.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=None, help="Only the last so many lines of each log."
)
@click.option(
    "--since",
    type=MOMENT,
    metavar="TIME",
    help="Only lines written since then: 10m, 1h30m, or a date and time.",
)
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines that match this regular expression.")
@_namespaced
def logs(
    job: str,
    node: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    pattern: str | None,
    namespace: str,
) -> None:
    """The output of a job's nodes by time, each line with its node's name; of one NODE without."""
    try:
        wanted = re.compile(pattern or "")
    except re.error as error:
        raise UserError(f"--grep: {pattern!r} is no regular expression: {error}.") from None

    async def print_logs(found: Job) -> None:
        names = await found.log_names()
        # A job that has just begun has no logs yet.
        if not names and not (follow and await found.is_running()):
            raise UserError(f"There are no logs of job {job}.", hint=found.missing_logs_hint)
        if node and node not in names:
            raise UserError(
                f"Job {job} has no log of {node!r}.{did_you_mean(node, names)}",
                hint=f"There are: {', '.join(names)}.",
            )
        async for line in found.logs(node, follow=follow, tail=tail, since=since):
            if not wanted.search(line.text):
                continue
            click.echo(line.text if node else f"{line.node}: {line.text}")

    _with_job(job, namespace, print_logs)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates, and over which the use of processors is measured.",
)
@_namespaced
def top(job: str, interval: float, namespace: str) -> None:
    """Shows the resources of each node of a running job: processor, memory, GPU, and the samples it trains.

    On a terminal the table is updated until the job ends or Ctrl-C; elsewhere it is printed once. A job on a cluster
    needs metrics-server there, and shows no GPUs.
    """
    from elasticdl.cli.output.job_top import show_top

    async def watch(found: Job) -> None:
        await found.check_running()
        await show_top(found, interval)

    # The usual end.
    with contextlib.suppress(KeyboardInterrupt):
        _with_job(job, namespace, watch)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@click.argument("node", default="", shell_complete=complete_running_nodes)
def pid(job: str, node: str) -> None:
    """The process ids of a running job's nodes on this machine; of one NODE, only the number.

    \b
    kill -9 $(elasticdl jobs pid my-job worker-0)
    """
    from elasticdl.catalog.local.process_ids import node_process_ids
    from elasticdl.jobs.job_store import JobStore

    folder = JobStore().get(job)
    if not folder.is_running():
        raise UserError(f"Job {job} is not running: it has {folder.state()}.")
    processes = node_process_ids(folder)
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
@click.argument("job", shell_complete=complete_jobs)
@click.option("--num_workers", type=int, default=None, help="How many workers the job shall have.")
@click.option("--num_ps", type=int, default=None, help="How many parameter servers the job shall have.")
@click.option(
    "--victim",
    "victims",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_running_nodes,
    help="Drain this node first, such as worker-3; may be given several times.",
)
@_namespaced
def scale(
    job: str, num_workers: int | None, num_ps: int | None, victims: tuple[str, ...], namespace: str
) -> None:
    """Change the number of nodes of a running job."""
    if num_workers is None and num_ps is None and not victims:
        raise UserError("Give the desired size.", hint=f"elasticdl jobs scale {job} --num_workers=4")

    async def apply(found: Job) -> DesiredResult | None:
        await found.check_running()
        return await found.scale(num_workers=num_workers, num_ps=num_ps, victims=victims)

    result = _with_job(job, namespace, apply)
    if result is None:
        click.echo(f"Job {job} goes to the desired size as soon as its master has seen it.")
        return
    for name, reason in result.ignored_victims.items():
        note(f"{name} is not drained: {reason}")
    click.echo(f"Job {job} goes {result.message}." if result.message else f"Job {job} has that size.")


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", shell_complete=complete_jobs)
@_namespaced
def stop(job: str, namespace: str) -> None:
    """Save a checkpoint and end a running job."""

    async def apply(found: Job) -> tuple[str, str]:
        await found.check_running()
        await found.stop("elasticdl jobs stop")
        state = (await found.summary()).state
        return str(state), found.resume_hint(state)

    state, hint = _with_job(job, namespace, apply)
    click.echo(f"Job {job}: {state}.")
    if hint:
        note(hint)


@jobs.command(context_settings=_CONTEXT)
@click.argument("job", nargs=-1, shell_complete=complete_jobs)
@click.option(
    "--older_than",
    type=DURATION,
    metavar="DURATION",
    help="All jobs that ended longer ago than that: 12h, 7d. Of this machine, or of the --namespace.",
)
@_namespaced
def delete(job: tuple[str, ...], older_than: float | None, namespace: str) -> None:
    """Remove all that is left of finished jobs: record, logs, pods, and their earlier runs; of NAME.NUMBER only that
    run. Checkpoints and models elsewhere stay.
    """
    if bool(job) == (older_than is not None):
        raise UserError(
            "Name the jobs to delete, or say which by --older_than; not both.",
            hint="elasticdl jobs delete my-job, or elasticdl jobs delete --older_than=7d",
        )
    names = job if older_than is None else _ended_before(time.time() - older_than, namespace)
    for name in names:
        _with_job(name, namespace, lambda found: found.delete())
        click.echo(f"Job {name} deleted.")
    if not names:
        click.echo("There are no such jobs.")


def _ended_before(moment: float, namespace: str) -> tuple[str, ...]:
    """Interrupted jobs may be resumed, so they are deleted by name only. So are those that cannot be read."""

    async def main() -> JobList:
        async with JobLookup(namespace=namespace, observer=NoteObserver()) as lookup:
            return await (lookup.list() if namespace else lookup.list_here())

    jobs = [found for found in asyncio.run(main()).jobs if found.ended is not None and found.ended < moment]
    # Deleting the newest run of a name deletes the earlier ones too.
    return tuple(found.job for found in sorted(jobs, key=lambda found: found.ended or 0.0))
