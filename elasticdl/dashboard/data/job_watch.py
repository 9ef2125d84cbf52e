"""Reads one job again and again for its page.

Of a job of this machine the history file is read on from where the last reading ended. Of a job on a cluster, whose
folder is out of reach, the history begins with the first reading.

Failure modes
    The master does not answer, since it was killed and is about to come back: the last status stands, and the sentence
    says so. The job was deleted: `UserError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.catalog.job import Job, JobSummary, NodeUsage
from elasticdl.catalog.local.background_thread import in_thread
from elasticdl.catalog.local.job import LocalJob
from elasticdl.catalog.local.master_client import MasterAway
from elasticdl.dashboard.data import job_page
from elasticdl.dashboard.data.history_view import HistoryView
from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.data.sections import Sections, to_json
from elasticdl.errors import UserError
from elasticdl.jobs.history.entries import parse_lines
from elasticdl.jobs.history.recorder import HistoryRecorder
from elasticdl.jobs.status import JobStatus

_AWAY = "The master does not answer. It is restarted and continues from its journal."
# A file of more is read in several readings.
_MOST_BYTES = 64 * 1024 * 1024


class JobWatch:
    def __init__(self, source: JobSource, name: str, namespace: str, *, allows_actions: bool) -> None:
        self._source = source
        self._name = name
        self._namespace = namespace
        self._allows_actions = allows_actions
        self._view = HistoryView()
        self._file: HistoryFile | None = None
        self._recorder: HistoryRecorder | None = None
        self._status: JobStatus | None = None
        self._usage: LocalJob | None = None
        self._definition: str | None = None

    async def read(self) -> Sections:
        """Returns all sections. Raises `UserError` if there is no such job."""
        async with self._source.job(self._name, self._namespace) as job:
            return await self._read(job)

    async def _read(self, job: Job) -> Sections:
        summary = await job.summary()
        status, is_away = await self._read_status(job)
        await self._read_history(job, status, is_away=is_away)
        head = job_page.head(
            summary,
            status,
            logs_location=job.logs_location,
            resume_hint=job.resume_hint(summary.state),
            allows_actions=self._allows_actions,
        )
        if is_away and summary.state is not None and summary.state.is_active:
            head["sentence"] = _AWAY
        status = _in_state(status, summary)
        sections: dict[str, Any] = {
            "head": head,
            "progress": job_page.progress(status),
            "curves": job_page.curves(status, self._view),
            "series": self._view.series(),
            "nodes": job_page.nodes(status, self._view),
            "node_figures": job_page.node_figures(status, await self._read_usage(job, status)),
            "ledger": job_page.ledger(status),
            "goodput": job_page.goodput(self._view),
            "servers": job_page.servers(status),
            "events": self._view.events(),
            "audit": job_page.audit(status),
            "log_names": await job.log_names(),
        }
        texts = {key: to_json(value) for key, value in sections.items()}
        texts["definition"] = await self._read_definition(job)
        return texts

    async def _read_status(self, job: Job) -> tuple[JobStatus, bool]:
        try:
            self._status = await job.status()
        except MasterAway:
            return self._status or JobStatus(job=self._name), True
        return self._status, False

    async def _read_history(self, job: Job, status: JobStatus, *, is_away: bool) -> None:
        if isinstance(job, LocalJob):
            if self._file is None or self._file.path != job.folder.history_path:
                # The first reading, or the name means a newer run now.
                self._file, self._view = HistoryFile(job.folder.history_path), HistoryView()
                self._definition = None
            file = self._file
            self._view.add(parse_lines(await in_thread(file.read_new)))
        elif not is_away and status.has_report:
            self._recorder = self._recorder or HistoryRecorder()
            self._view.add(self._recorder.observe(status))

    async def _read_usage(self, job: Job, status: JobStatus) -> Mapping[str, NodeUsage]:
        """Processor and memory of nodes of this machine. Rates need the same handle twice."""
        if not isinstance(job, LocalJob) or not status.state.is_active:
            return {}
        if self._usage is None or self._usage.folder.path != job.folder.path:
            self._usage = job
        try:
            return await self._usage.usage()
        except UserError:
            # The job has just ended.
            return {}

    async def _read_definition(self, job: Job) -> str:
        if self._definition is None:
            try:
                self._definition = to_json(job_page.definition(await job.spec()))
            except UserError as error:
                return to_json({"yaml": "", "command": "", "problem": str(error)})
        return self._definition


class HistoryFile:
    """Reads a growing file of lines from where it ended last time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def read_new(self) -> list[str]:
        """Returns complete lines only. A job without a history has none."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


def _in_state(status: JobStatus, summary: JobSummary) -> JobStatus:
    return status if summary.state is None else dataclasses.replace(status, state=summary.state)
