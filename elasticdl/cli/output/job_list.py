"""The list of jobs: a table, and the same as a JSON document."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from elasticdl.catalog.job import JobSummary
from elasticdl.jobs.status import RunState

# In place of what cannot be read.
_UNKNOWN = "?"
_HEADER = ("JOB", "KIND", "STATE", "STARTED", "TOOK", "PLACE")
_STATE_COLUMN = 2
_COLOURS = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "yellow",
    "interrupted": "red",
}


def job_document(job: JobSummary) -> dict[str, str | float | None]:
    """One entry of `elasticdl jobs list --json`."""
    return {
        "job": job.job,
        "kind": job.kind or _UNKNOWN,
        "state": str(job.state or _UNKNOWN),
        "created": job.created,
        "ended": job.ended,
        "message": job.message,
        "place": job.location,
    }


def print_jobs(jobs: Sequence[JobSummary]) -> None:
    rows = [
        (
            job.job,
            job.kind or _UNKNOWN,
            str(job.state or _UNKNOWN),
            _moment(job.created),
            _duration(job),
            job.location,
        )
        for job in jobs
    ]
    widths = [max(len(row[column]) for row in [_HEADER, *rows]) for column in range(len(_HEADER))]
    for row in [_HEADER, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if sys.stdout.isatty() and row is not _HEADER:
            cells[_STATE_COLUMN] = click.style(cells[_STATE_COLUMN], fg=_COLOURS.get(row[_STATE_COLUMN]))
        click.echo("  ".join(cells).rstrip())


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else _UNKNOWN


def _duration(job: JobSummary) -> str:
    if job.ended is None and job.state in (RunState.INTERRUPTED, None):
        return _UNKNOWN
    # The cluster's clock may be ahead of ours.
    seconds = max(0, int((job.ended or time.time()) - job.created))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m{seconds:02d}s" if hours else f"{minutes}m{seconds:02d}s"
