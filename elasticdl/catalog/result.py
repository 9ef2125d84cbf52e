"""How a job ended, for the Python API and for exit codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticdl.errors import ExitCode
from elasticdl.jobs.status import JobStatus, RunState


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of `elasticdl.run`.

    Attributes:
        job_name: The name of the job.
        state: "succeeded", "failed" or "stopped"; "interrupted" if the job has lost its master.
        message: Why the job did not succeed. Empty if it did.
        job_status: The last status of the job.
    """

    job_name: str
    state: str
    message: str
    job_status: JobStatus = field(repr=False)

    @classmethod
    def of(cls, status: JobStatus) -> JobResult:
        """Returns the result of a job whose last status this is."""
        message = status.message or status.trouble
        return cls(job_name=status.job, state=str(status.state), message=message, job_status=status)

    @property
    def succeeded(self) -> bool:
        return self.state == RunState.SUCCEEDED.value

    @property
    def status(self) -> dict[str, Any]:
        """The document that `elasticdl jobs status --json` prints."""
        return self.job_status.to_json()

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last evaluation."""
        newest = self.job_status.latest_evaluation
        return dict(newest.metrics) if newest is not None else {}

    @property
    def exit_code(self) -> int:
        """The exit code of the command that ran the job."""
        return exit_code(self.job_status)


def exit_code(status: JobStatus) -> ExitCode:
    """A job has succeeded only if its audit is exact."""
    if status.state is RunState.SUCCEEDED:
        is_exact = status.audit is None or status.audit.exact
        return ExitCode.SUCCESS if is_exact else ExitCode.JOB_FAILED
    return ExitCode.INTERRUPTED if status.state is RunState.STOPPED else ExitCode.JOB_FAILED
