"""The events of a job, for callers that display them.

Catalogs run inside commands, servers and notebooks, so they print nothing. They call an observer instead; the command
line implements one that prints. Calls may come from another thread than the one that created the observer, one at a
time.
"""

from __future__ import annotations

from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus


class JobObserver:
    """Ignores everything. Subclasses override what they show."""

    def note(self, text: str) -> None:
        """Something that a person who waits should know."""

    def started(self, spec: JobSpec, location: str) -> None:
        """The job is submitted. `location`: where it runs and where its output is, in words."""

    def progressed(self, status: JobStatus) -> None:
        """A newer status of the job; it need not have changed."""

    def ended(self, status: JobStatus, logs: str) -> None:
        """The job is over. `logs`: where a person finds its logs."""


SILENT = JobObserver()
