"""The list of jobs: a table, and the same as a JSON document."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from elasticdl.catalog.job import JobProgress, JobSummary
from elasticdl.jobs.status import RunState

# In place of what cannot be read.
_UNKNOWN = "?"
# In place of what a job has not, or not yet.
_NONE = "-"
_HEADER = ("JOB", "KIND", "STATE", "PROGRESS", "METRIC", "AGE", "TOOK", "PLACE")
_STATE_COLUMN = 2
# Columns that a narrow terminal omits, the first one first. Programs that read the list get all.
_LEFT_OUT = ("PLACE", "TOOK", "KIND", "METRIC", "AGE")
_GAP = 2
_COLOURS = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "yellow",
    "interrupted": "red",
}


def select_jobs(
    jobs: Iterable[JobSummary], *, states: Sequence[str], kinds: Sequence[str], since: float | None
) -> list[JobSummary]:
    """Returns the jobs that match every filter that is given, the newest first."""
    found = [
        job
        for job in jobs
        if (not states or (job.state or _UNKNOWN) in states)
        and (not kinds or job.kind in kinds)
        and (since is None or job.created >= since)
    ]
    return sorted(found, key=lambda job: job.created, reverse=True)


def job_document(job: JobSummary) -> dict[str, str | float | Mapping[str, float] | None]:
    """Returns an entry of `elasticdl jobs list --json`."""
    return {
        "job": job.job,
        "kind": job.kind or _UNKNOWN,
        "state": str(job.state or _UNKNOWN),
        "created": job.created,
        "ended": job.ended,
        "message": job.message,
        "place": job.location,
        "samples_done": job.progress.samples_done,
        "samples_total": job.progress.samples_desired,
        "metrics": dict(job.progress.metrics),
        "loss": job.progress.loss,
    }


def print_jobs(jobs: Sequence[JobSummary], *, width: int | None = None) -> None:
    """`width`: of the table, by default that of the terminal, and unlimited where there is none."""
    now = time.time()
    rows = [
        (
            job.job,
            job.kind or _UNKNOWN,
            str(job.state or _UNKNOWN),
            _share(job.progress),
            _metric(job.progress),
            _age(job, now),
            _duration(job, now),
            job.location,
        )
        for job in jobs
    ]
    widths = [max(len(row[column]) for row in [_HEADER, *rows]) for column in range(len(_HEADER))]
    is_terminal = sys.stdout.isatty()
    if width is None and is_terminal:
        width = shutil.get_terminal_size().columns
    columns = [*range(len(_HEADER))] if width is None else _columns_within(width, widths)
    for row in [_HEADER, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if is_terminal and row is not _HEADER:
            cells[_STATE_COLUMN] = click.style(cells[_STATE_COLUMN], fg=_COLOURS.get(row[_STATE_COLUMN]))
        click.echo((" " * _GAP).join(cells[column] for column in columns).rstrip())


def _columns_within(room: int, widths: Sequence[int]) -> list[int]:
    """The columns that fit side by side; names, states and progress stay in any case."""
    columns = [*range(len(_HEADER))]
    for name in _LEFT_OUT:
        if sum(widths[column] for column in columns) + _GAP * (len(columns) - 1) <= room:
            break
        columns.remove(_HEADER.index(name))
    return columns


def _share(progress: JobProgress) -> str:
    if not progress.samples_desired:
        return _NONE
    # Rounded down: 100% means all of it.
    return f"{100 * progress.samples_done // progress.samples_desired}%"


def _metric(progress: JobProgress) -> str:
    """The first metric of the newest evaluation, which is the first that the model defines; else the loss."""
    if progress.metrics:
        name = next((name for name in progress.metrics if name != "loss"), "loss")
        return f"{name}={progress.metrics[name]:.4g}"
    return _NONE if progress.loss is None else f"loss={progress.loss:.4g}"


def _age(job: JobSummary, now: float) -> str:
    """Formats the age in the largest unit that fits, like kubectl."""
    if not job.created:
        return _UNKNOWN
    # The cluster's clock may be ahead of ours.
    seconds = max(0, int(now - job.created))
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _duration(job: JobSummary, now: float) -> str:
    if job.ended is None and job.state in (RunState.INTERRUPTED, None):
        return _UNKNOWN
    seconds = max(0, int((job.ended or now) - job.created))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{seconds:02d}s" if hours else f"{minutes}m{seconds:02d}s"
