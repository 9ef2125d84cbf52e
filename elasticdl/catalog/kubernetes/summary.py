"""Builds a row of the list of jobs from the job record and the pod of the master, or from a TrainingJob alone."""

from __future__ import annotations

import datetime

from elasticdl.catalog.job import JobProgress, JobSummary
from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.catalog.kubernetes.training_job import owner_group, waiting_reason
from elasticdl.jobs.job_record import STATUS_KEY
from elasticdl.jobs.status import RunState, StatusError
from elasticdl.platforms.kubernetes.api_resources import Resource
from elasticdl.platforms.kubernetes.client import Document


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
        training_job_group=owner_group(job.document),
    )


def summarize_waiting(resource: Resource, document: Document) -> JobSummary:
    """Of a TrainingJob that has no job record: the controller has not started it, or never will."""
    metadata = document["metadata"]
    phase = str((document.get("status") or {}).get("phase") or "").lower()
    has_ended = phase in (RunState.SUCCEEDED.value, RunState.FAILED.value, RunState.STOPPED.value)
    return JobSummary(
        job=str(metadata["name"]),
        kind="train",
        state=RunState(phase) if has_ended else RunState.STARTING,
        created=_seconds(metadata["creationTimestamp"]),
        ended=None,
        message=f"It has not started: {waiting_reason(document)}",
        location=f"namespace {metadata['namespace']}",
        namespace=str(metadata["namespace"]),
        training_job_group=resource.group,
    )


def _seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
