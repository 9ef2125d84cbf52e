"""The interface to all jobs of one place: this machine, or one namespace of a cluster.

A catalog is an async context manager: inside it, and inside one event loop, its jobs can be used. It tells its observer
what happens to the jobs that are submitted, waited for, stopped or deleted through it.
"""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TypeVar

from elasticdl.catalog.job import Job, JobSummary
from elasticdl.jobs.spec import JobSpec

_Self = TypeVar("_Self", bound="Catalog")


class Catalog(abc.ABC):
    @property
    @abc.abstractmethod
    def location(self) -> str:
        """The place of its jobs, in words."""

    @abc.abstractmethod
    async def submit(self, spec: JobSpec) -> Job:
        """Starts a job and returns its handle. The master may still be starting (`Job.wait_until_started`).

        Raises `UserError` if the name is in use, or for whatever is wrong with the job.
        """

    @abc.abstractmethod
    async def find(self, name: str) -> Job | None:
        """Returns the job of that name, or None."""

    @abc.abstractmethod
    async def list(self) -> tuple[JobSummary, ...]:
        """Returns all jobs, running and finished. Jobs that cannot be read are listed too."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes connections. Jobs go on."""

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
