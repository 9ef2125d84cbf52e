"""Finds jobs by name: on this machine, else on the cluster that is configured here, if one is.

The cluster is asked only if this machine has no such job, or if a namespace is named: most users have no cluster.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from elasticdl.catalog.job import Job, JobSummary
from elasticdl.catalog.local.catalog import LocalCatalog
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

if TYPE_CHECKING:
    from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog


def is_cluster_configured() -> bool:
    """Looks where kubectl would look, without a connection."""
    named = os.environ.get("KUBECONFIG")
    paths = [Path(part) for part in named.split(os.pathsep) if part] if named else [_default_config()]
    return any(path.is_file() for path in paths) or "KUBERNETES_SERVICE_HOST" in os.environ


def _default_config() -> Path:
    return Path.home() / ".kube" / "config"


@dataclass(frozen=True, kw_only=True)
class JobList:
    """`jobs`: the oldest first. `problem`: why those of the cluster are missing, if it did not answer."""

    jobs: tuple[JobSummary, ...]
    problem: str = ""


class JobLookup:
    """Searches this machine, then the cluster; with a `namespace`, only that namespace of the cluster. `token`: of the
    cluster's user as whom to act.

    An async context manager; the jobs it finds can be used inside it.
    """

    def __init__(self, *, namespace: str = "", token: str = "", observer: JobObserver = SILENT) -> None:
        self._namespace = namespace
        self._token = token
        self._observer = observer
        self._local = None if namespace else LocalCatalog(observer=observer)
        self._cluster: KubernetesCatalog | None = None

    async def find(self, name: str) -> Job:
        """Raises `UserError` if there is no such job, with the nearest name."""
        if self._local is not None:
            if (found := await self._local.find(name)) is not None:
                return found
            if not is_cluster_configured():
                return self._local.job(name)
        cluster = self._connect()
        if (found_there := await cluster.find(name)) is not None:
            return found_there
        here = [] if self._local is None else [job.job for job in await self._local.list()]
        there = [job.job for job in await cluster.list()]
        place = f"in {cluster.location}"
        if self._local is not None:
            place = f"on this machine or {place}"
        raise UserError(
            f"There is no job {name!r} {place}.{did_you_mean(name, [*here, *there])}",
            hint="`elasticdl jobs list` lists them.",
        )

    async def list_here(self) -> JobList:
        """Returns the jobs of this machine only."""
        return JobList(jobs=() if self._local is None else await self._local.list())

    async def list(self) -> JobList:
        found = [] if self._local is None else list(await self._local.list())
        problem = ""
        if self._namespace or is_cluster_configured():
            try:
                found += await self._connect().list()
            except UserError as error:
                if self._namespace:
                    raise
                problem = str(error)
        return JobList(jobs=tuple(sorted(found, key=lambda job: job.created)), problem=problem)

    async def list_everywhere(self) -> tuple[JobSummary, ...]:
        """Returns the jobs of all namespaces of the cluster, with TrainingJobs that wait."""
        return tuple(sorted(await self._connect().list_everywhere(), key=lambda job: job.created))

    def _connect(self) -> KubernetesCatalog:
        if self._cluster is None:
            # Not needed by users without a cluster.
            from elasticdl.catalog.kubernetes.catalog import KubernetesCatalog
            from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

            self._cluster = KubernetesCatalog.connect(
                namespace=self._namespace or current_namespace(), token=self._token, observer=self._observer
            )
        return self._cluster

    async def __aenter__(self) -> JobLookup:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cluster is not None:
            await self._cluster.close()
