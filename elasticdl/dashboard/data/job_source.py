"""Reads jobs for the pages, by the same handles as the commands: `elasticdl jobs list`, `status`, `logs` and `top`.

A run of this machine that has ended is read once, and again when its record changes; those that run are asked for a
brief status. The cluster is asked less often, and only if one is configured.

Failure modes
    A job cannot be read: its row says why. The cluster does not answer: the list of this machine comes with
    the problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from elasticdl.catalog.job import Job, JobSummary
from elasticdl.catalog.local.background_thread import in_thread
from elasticdl.catalog.local.job import LOCATION, LocalJob
from elasticdl.catalog.lookup import JobLookup, is_cluster_configured
from elasticdl.dashboard.data.job_rows import job_row, row_key
from elasticdl.dashboard.job_metrics import exposition_of
from elasticdl.dashboard.prometheus_text import Exposition
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.status import RunState

_CLUSTER_SECONDS = 5.0
_ACTIVE = frozenset(str(state) for state in RunState if state.is_active)
# Masters that are asked at the same time.
_MOST_CALLS = 16


@dataclass(frozen=True, kw_only=True)
class JobRows:
    """Rows by `row_key`. `problem`: why those of the cluster are missing, or old."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


class JobSource:
    """`namespace`: only jobs of the cluster, in this namespace. `everywhere`: only those of the cluster, in all."""

    def __init__(
        self, *, namespace: str = "", everywhere: bool = False, store: JobStore | None = None
    ) -> None:
        self._namespace = namespace
        self._everywhere = everywhere
        self._store = store or JobStore()
        self._ended = EndedRows()
        self._cluster = ClusterRows(namespace, everywhere=everywhere)

    async def rows(self) -> JobRows:
        """Returns all jobs."""
        found: dict[str, dict[str, Any]] = {}
        if not self._namespace and not self._everywhere:
            found.update(await self._local_rows())
        there = await self._cluster.rows()
        return JobRows(rows={**found, **there.rows}, problem=there.problem)

    @contextlib.asynccontextmanager
    async def job(self, name: str, namespace: str, *, token: str = "") -> AsyncIterator[Job]:
        """Finds a job: of this machine if no namespace is named. It can be used inside the context. `token`: of the
        user as whom to act on the cluster.

        Raises `UserError` if there is none.
        """
        wanted = namespace or self._namespace
        if not wanted and self._everywhere:
            raise UserError(f"The namespace of job {name} is missing.", hint="Name it with ?namespace=NAME.")
        if not wanted:
            yield LocalJob(self._store.get(name), store=self._store, reference=name)
            return
        async with JobLookup(namespace=wanted, token=token) as lookup:
            yield await lookup.find(name)

    async def metrics(self) -> str:
        """Returns the metrics of all active jobs for Prometheus. A job that does not answer has none."""
        found = await self.rows()
        limit = asyncio.Semaphore(_MOST_CALLS)

        async def read(row: dict[str, Any]) -> Exposition:
            async with limit:
                with contextlib.suppress(UserError):
                    async with self.job(row["job"], row["namespace"]) as job:
                        status = dataclasses.replace(await job.status(), job=row["job"])
                        return exposition_of(status, namespace=row["namespace"])
            return Exposition()

        active = [row for row in found.rows.values() if row["state"] in _ACTIVE]
        out = Exposition()
        for each in await asyncio.gather(*map(read, active)):
            out.add(each)
        return out.text()

    async def _local_rows(self) -> dict[str, dict[str, Any]]:
        listed = await in_thread(lambda: [(folder, record_stamp(folder)) for folder in self._store.folders()])
        self._ended.keep(folder.path.name for folder, _ in listed)
        limit = asyncio.Semaphore(_MOST_CALLS)

        async def read(folder: JobFolder, stamp: int) -> dict[str, Any]:
            known = self._ended.get(folder, stamp)
            if known is not None:
                return known
            async with limit:
                summary = await self._summary(folder)
            row = job_row(summary)
            if summary.ended is not None:
                self._ended.put(folder, stamp, row)
            return row

        rows = await asyncio.gather(*(read(folder, stamp) for folder, stamp in listed))
        return {row_key(row["job"], ""): row for row in rows}

    async def _summary(self, folder: JobFolder) -> JobSummary:
        job = LocalJob(folder, store=self._store)
        try:
            return dataclasses.replace(await job.summary(), progress=await job.progress())
        except UserError as error:
            return JobSummary(
                job=folder.name,
                kind="",
                state=None,
                created=0.0,
                ended=None,
                message=str(error),
                location=LOCATION,
            )


class EndedRows:
    """Rows of runs that have ended, by the name of their folder; `stamp` says whether the run was touched since."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, str, dict[str, Any]]] = {}

    def get(self, folder: JobFolder, stamp: int) -> dict[str, Any] | None:
        known = self._rows.get(folder.path.name)
        # A newer run of the same name changes what this one is called.
        if known is None or known[0] != stamp or known[1] != folder.name:
            return None
        return known[2]

    def put(self, folder: JobFolder, stamp: int, row: dict[str, Any]) -> None:
        self._rows[folder.path.name] = (stamp, folder.name, row)

    def keep(self, names: Iterable[str]) -> None:
        wanted = set(names)
        self._rows = {name: row for name, row in self._rows.items() if name in wanted}


class ClusterRows:
    """The jobs of one namespace or of all, at most as old as a few seconds."""

    def __init__(self, namespace: str, *, everywhere: bool) -> None:
        self._namespace = namespace
        self._everywhere = everywhere
        self._rows = JobRows()
        self._read_at: float | None = None

    async def rows(self) -> JobRows:
        if not self._namespace and not self._everywhere and not is_cluster_configured():
            return JobRows()
        now = time.monotonic()
        if self._read_at is None or now - self._read_at > _CLUSTER_SECONDS:
            try:
                self._rows = JobRows(rows=await self._read())
            except UserError as error:
                self._rows = dataclasses.replace(self._rows, problem=str(error))
            self._read_at = time.monotonic()
        return self._rows

    async def _read(self) -> dict[str, dict[str, Any]]:
        from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

        async with JobLookup(namespace=self._namespace or current_namespace()) as lookup:
            jobs = await lookup.list_everywhere() if self._everywhere else (await lookup.list()).jobs
        return {row_key(job.job, job.namespace): job_row(job) for job in jobs}


def record_stamp(folder: JobFolder) -> int:
    """Changes whenever the record of a run is written. 0 if there is none."""
    with contextlib.suppress(OSError):
        return folder.record_path.stat().st_mtime_ns
    return 0
