"""Builds a row of the list of jobs from the job record and the pod of the master."""

from __future__ import annotations

import datetime

from elasticdl.catalog.job import JobProgress, JobSummary
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.jobs.job_record import STATUS_KEY
from elasticdl.jobs.status import RunState, StatusError


def summarize(job: ObservedJob, *, location: str) -> JobSummary:
    """A status that cannot be read is the message of the summary, and no error."""
    state: RunState | None = None
    ended: float | None = None
    progress = JobProgress()
    try:
        state, message = job.state, job.reported.message
        progress = JobProgress.of(job.reported)
        ended = job.reported.now if state.is_final else None
    except StatusError as error:
        message = f"What its master has reported ({STATUS_KEY} of its record) cannot be read: {error.message}"
    return JobSummary(
        job=job.name,
        kind=job.record.kind,
        state=state,
        created=_seconds(job.document["metadata"]["creationTimestamp"]),
        ended=ended,
        message=message,
        location=location,
        progress=progress,
        namespace=job.document["metadata"].get("namespace", ""),
    )


def _seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
