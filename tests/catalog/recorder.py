"""An observer that records every call."""

from __future__ import annotations

from elasticdl.catalog.observer import JobObserver
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus


class Recorder(JobObserver):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.started_jobs: list[str] = []
        self.statuses: list[JobStatus] = []
        self.last: JobStatus | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def started(self, spec: JobSpec, location: str) -> None:
        self.started_jobs.append(spec.job_name)

    def progressed(self, status: JobStatus) -> None:
        self.statuses.append(status)

    def ended(self, status: JobStatus, logs: str) -> None:
        self.last = status
