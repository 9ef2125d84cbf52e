"""The handle of one job, wherever it runs: on this machine or on a cluster.

A handle holds no state of the job. Every call asks the master, the job folder or the job record, so a handle stays
valid when the job changes or is deleted; then calls raise `UserError`.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """The progress of a job, in a list of jobs. Without samples or metrics where they are not known."""

    samples_done: int = 0
    samples_desired: int = 0
    # The metrics of the newest evaluation.
    metrics: Mapping[str, float] = field(default_factory=dict)
    loss: float | None = None
    # The status that all of this was derived from.
    status: JobStatus | None = None

    @classmethod
    def of(cls, status: JobStatus) -> JobProgress:
        newest = status.latest_evaluation
        return cls(
            samples_done=status.samples_done,
            samples_desired=status.samples_desired,
            metrics=dict(newest.metrics) if newest else {},
            loss=status.loss,
            status=status,
        )


@dataclass(frozen=True, kw_only=True)
class NodeUsage:
    """The resources of its machine that a node uses. None where a value is not known."""

    # The use of all processes of the node, in cores.
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    # The use of the busiest device of the node, between 0 and 1.
    gpu_utilization: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A row of a list of jobs. Times are seconds since 1970."""

    job: str
    # Empty if it cannot be read.
    kind: str
    # None if it cannot be read; the message says why.
    state: RunState | None
    # 0 if it cannot be read.
    created: float
    ended: float | None
    message: str
    # "here", or the namespace on the cluster.
    location: str
    # On the cluster; empty for a job of this machine.
    namespace: str = ""
    # The API group of the TrainingJob that it belongs to; empty for other jobs.
    training_job_group: str = ""
    progress: JobProgress = field(default_factory=JobProgress)


class JobInterrupted(UserError):
    """A job has lost the process that ran it, and goes on only when it is resumed."""

    exit_code = ExitCode.JOB_FAILED


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of the output of a node, without its line break."""

    node: str
    text: str
    # When it was written, in seconds since 1970. None if it is not known.
    moment: float | None = None


@dataclass(frozen=True, kw_only=True)
class StartReport:
    """The result of a submission. Without a `problem`, the master has reported its first status."""

    problem: str = ""
    # The end of the master's log.
    log_lines: tuple[str, ...] = ()
    # Nothing is wrong yet: the master waits for resources, or needs more time.
    is_waiting: bool = False
    # The master exits before its first report, and is restarted again and again.
    is_crashing: bool = False
    # The first status of the master says that the job has failed.
    has_failed: bool = False


class Job(abc.ABC):
    """A job. All methods raise `UserError` for problems that a user can correct."""

    name: str

    @property
    def namespace(self) -> str:
        """On the cluster; empty for a job of this machine."""
        return ""

    @property
    @abc.abstractmethod
    def location(self) -> str:
        """Returns the location of the job in words: "here", or the namespace on the cluster."""

    @property
    @abc.abstractmethod
    def logs_location(self) -> str:
        """Returns the location of the logs: a folder, or a command that prints them."""

    @property
    @abc.abstractmethod
    def missing_logs_hint(self) -> str:
        """Why the job may have no logs at all."""

    @property
    @abc.abstractmethod
    def recovery_hint(self) -> str:
        """Returns the advice for a job that is interrupted."""

    @abc.abstractmethod
    def command(self, name: str) -> str:
        """Returns the shell command `elasticdl jobs NAME` for this job, for hints."""

    def resume_hint(self, state: RunState | None) -> str:
        """Says how to continue the job after it has ended in this state. Empty if it cannot be continued."""
        return ""

    @abc.abstractmethod
    async def spec(self) -> JobSpec:
        """Returns the job as it was submitted, with all defaults."""

    @abc.abstractmethod
    async def summary(self) -> JobSummary: ...

    @abc.abstractmethod
    async def status(self) -> JobStatus:
        """Returns the newest status that can be had."""

    @abc.abstractmethod
    async def is_running(self) -> bool:
        """The job has a master, or is about to have one."""

    @abc.abstractmethod
    async def log_names(self) -> tuple[str, ...]:
        """Returns the names of the nodes that have a log."""

    @abc.abstractmethod
    async def usage(self) -> Mapping[str, NodeUsage]:
        """Returns what each running node uses, since the last call of this handle where it is a rate. Empty if it
        cannot be known.
        """

    @abc.abstractmethod
    def logs(
        self, node: str = "", *, follow: bool = False, tail: int | None = None, since: float | None = None
    ) -> AsyncIterator[LogLine]:
        """Yields the lines of one node, or of all nodes by time if none is named. `follow`: until the job ends.
        `tail`: of each log only the last so many lines, and what follows them. `since`: only lines that were written
        at that moment or later, in seconds since 1970.
        """

    @abc.abstractmethod
    async def wait_until_started(self, *, retry: bool = False) -> StartReport:
        """Returns when the master has reported its first status, or is known not to. `retry`: keep asking a cluster
        that does not answer.
        """

    @abc.abstractmethod
    async def wait(self) -> JobStatus:
        """Returns the last status when the job is over. Raises `UserError` if it has lost its master."""

    @abc.abstractmethod
    async def scale(
        self,
        *,
        num_workers: int | None = None,
        num_ps: int | None = None,
        victims: Sequence[str] = (),
    ) -> DesiredResult | None:
        """Sets the desired size. Returns what the master does about it, None if it has not answered yet. Raises
        `UserError` with what it rejects. `victims`: nodes to drain first.
        """

    @abc.abstractmethod
    async def stop(self, reason: str) -> None:
        """Stops the job after a checkpoint. Returns when the job is over."""

    @abc.abstractmethod
    async def resume(self) -> None:
        """Restarts the master of an interrupted job; on this machine, continues any job that has not succeeded."""

    @abc.abstractmethod
    async def delete(self) -> None:
        """Removes everything that is left of the job. Raises `UserError` while it runs."""

    async def check_running(self) -> None:
        """Raises `UserError` if there is no master to send a command to."""
        if await self.is_running():
            return
        state = (await self.summary()).state
        if state is RunState.INTERRUPTED:
            raise UserError(
                f"Job {self.name} is interrupted: there is no master to ask.", hint=self.recovery_hint
            )
        raise UserError(f"Job {self.name} is not running: it has {state}.")
