"""`elasticdl jobs attach`, `wait` and `resume`: being there until a job ends, and continuing one that has ended.

All three end with the exit code of the job. Ctrl-C ends `attach` and `wait`, and not the job. A job that `resume` runs
in the foreground belongs to the command, as one of `elasticdl train` does: Ctrl-C saves a checkpoint and stops it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from elasticdl.catalog.job import Job
from elasticdl.catalog.local.job import LocalJob
from elasticdl.catalog.lookup import JobLookup
from elasticdl.catalog.observer import JobObserver
from elasticdl.catalog.result import exit_code
from elasticdl.cli.jobs.names import complete_jobs
from elasticdl.cli.output.display import make_display
from elasticdl.cli.output.notes import NoteObserver, note
from elasticdl.cli.submission.run import print_detached, resume_here
from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.status import JobStatus

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def _of_a_job(command: _Command) -> _Command:
    namespaced = click.option(
        "--namespace", default="", metavar="NAME", help="Look on the cluster, in this namespace."
    )(command)
    return click.argument("job", shell_complete=complete_jobs)(namespaced)


def _with_job(
    name: str, namespace: str, observer: JobObserver, action: Callable[[Job], Awaitable[_Result]]
) -> _Result:
    async def main() -> _Result:
        async with JobLookup(namespace=namespace, observer=observer) as lookup:
            return await action(await lookup.find(name))

    return asyncio.run(main())


@click.command(context_settings=_CONTEXT)
@_of_a_job
def attach(job: str, namespace: str) -> int:
    """Show a job until it ends, as the command that started it would.

    Ctrl-C detaches: the job goes on. `elasticdl jobs stop` stops it. The exit code is that of the job.
    """
    display = make_display(quiet=False)

    async def show(found: Job) -> tuple[JobStatus, str]:
        display.started(await found.spec(), f"logs: {found.logs_location}")
        status = await found.wait()
        return status, found.resume_hint(status.state)

    try:
        status, hint = _with_job(job, namespace, display, show)
        if hint:
            display.note(hint)
    except KeyboardInterrupt:
        display.note(f"Detached: job {job} goes on. `elasticdl jobs stop {job}` would stop it.")
        return ExitCode.INTERRUPTED
    finally:
        display.close()
    return exit_code(status)


@click.command(context_settings=_CONTEXT)
@_of_a_job
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Wait no longer, and exit with 124 if the job still runs then.",
)
def wait(job: str, timeout: float | None, namespace: str) -> int:
    """Wait until a job ends. The exit code is that of the job: 0 if it has succeeded, 1 if it has failed, 130 if it was
    stopped.
    """

    async def wait_for_end(found: Job) -> tuple[JobStatus, str] | None:
        try:
            status = await asyncio.wait_for(found.wait(), timeout)
        except asyncio.TimeoutError:
            return None
        return status, found.resume_hint(status.state)

    try:
        ended = _with_job(job, namespace, NoteObserver(), wait_for_end)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    if ended is None:
        note(f"Job {job} still runs after {timeout:g} s.")
        return ExitCode.TIMED_OUT
    status, hint = ended
    click.echo(f"Job {status.job} has {status.state}.")
    if hint:
        note(hint)
    return exit_code(status)


@click.command(context_settings=_CONTEXT)
@_of_a_job
@click.option("--detach", is_flag=True, help="On this machine: return when the job has started.")
def resume(job: str, detach: bool, namespace: str) -> int:
    """Continue a job that was stopped, has failed or was interrupted, under its name and with its flags.

    A training goes back to its newest checkpoint; the audit is about all attempts together. On this machine the command
    stays until the job ends, like `elasticdl train`. On a cluster it brings back the master of a job whose pod is gone.
    """

    async def resume_there(found: Job) -> LocalJob | None:
        if isinstance(found, LocalJob) and not detach:
            return found
        await found.resume()
        start = await found.wait_until_started() if isinstance(found, LocalJob) else None
        if start is not None and start.problem:
            raise UserError(f"Job {job} has not started: {start.problem}")
        return None

    here = _with_job(job, namespace, NoteObserver(), resume_there)
    if here is not None:
        # After the event loop, for it blocks, and handles signals.
        _enter_directory(here)
        return resume_here(job)
    if detach:
        print_detached(job)
    else:
        click.echo(f"Job {job}: its master is started again.")
    return ExitCode.SUCCESS


def _enter_directory(job: LocalJob) -> None:
    """Goes where the job was started: the paths in its flags are relative to that."""
    directory = job.folder.record().directory
    try:
        os.chdir(directory or ".")
    except OSError as error:
        raise UserError(
            f"Job {job.name} was started in {directory}, which cannot be entered: {error.strerror}."
        ) from None
