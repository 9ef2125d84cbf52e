"""The jobs of this machine.

A job that is submitted here runs inside this process, in a thread: the job ends with the process, and the interpreter
does not exit before the job is over. The command line runs its job in the main thread instead (`runner.py`), where it
can handle signals. A job that is to survive this process is submitted to a process of its own (`background_host.py`).
"""

from __future__ import annotations

import asyncio
import dataclasses

from elasticdl.catalog.catalog import Catalog
from elasticdl.catalog.job import JobSummary
from elasticdl.catalog.local.background_thread import in_thread
from elasticdl.catalog.local.job import LOCATION, LocalJob
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec


class LocalCatalog(Catalog):
    def __init__(self, *, store: JobStore | None = None, observer: JobObserver = SILENT) -> None:
        self._store = store or JobStore()
        self._observer = observer

    @property
    def location(self) -> str:
        return "this machine"

    async def submit(self, spec: JobSpec) -> LocalJob:
        from elasticdl.catalog.local.runner import LocalRunner

        runner = await in_thread(lambda: LocalRunner.create(spec, store=self._store, observer=self._observer))
        runner.start()
        return LocalJob(
            runner.folder,
            store=self._store,
            observer=self._observer,
            hosted=asyncio.wrap_future(runner.done),
        )

    async def submit_detached(self, spec: JobSpec) -> LocalJob:
        """Submits a job that continues when this process ends."""
        from elasticdl.catalog.local import background_host

        folder = await in_thread(lambda: background_host.submit(spec, store=self._store))
        return self.job(folder.name)

    async def find(self, name: str) -> LocalJob | None:
        """NAME is the newest run of that name, NAME.NUMBER an earlier one."""
        try:
            return self.job(name)
        except UserError:
            return None

    def job(self, name: str) -> LocalJob:
        """Returns the job of that name. Raises `UserError` with the nearest name if there is none."""
        return LocalJob(self._store.get(name), store=self._store, observer=self._observer, reference=name)

    async def list(self) -> tuple[JobSummary, ...]:
        """Jobs that run are asked at the same time: one whose master is away holds up no other."""
        return tuple(await asyncio.gather(*(self._summary(folder.name) for folder in self._store.list())))

    async def close(self) -> None:
        """Has nothing to close."""

    async def _summary(self, name: str) -> JobSummary:
        try:
            job = self.job(name)
            return dataclasses.replace(await job.summary(), progress=await job.progress())
        except UserError as error:
            # A damaged job does not hide the others.
            return JobSummary(
                job=name, kind="", state=None, created=0.0, ended=None, message=str(error), location=LOCATION
            )
