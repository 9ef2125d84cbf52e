"""The handle of a job of this machine: its folder, its log files, and calls to its master."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from elasticdl.catalog.job import (
    Job,
    JobInterrupted,
    JobProgress,
    JobSummary,
    LogLine,
    NodeUsage,
    StartReport,
)
from elasticdl.catalog.local.background_thread import in_thread
from elasticdl.catalog.local.process_usage import ProcessUsage
from elasticdl.catalog.log_order import LineClock, lines_since, place
from elasticdl.catalog.observer import SILENT, JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState, StatusError
from elasticdl.platforms.local.log_files import LogReader

LOCATION = "here"
_FOLLOW_SECONDS = 0.3
_START_POLL_SECONDS = 0.1
_STOP_POLL_SECONDS = 0.1
_STATUS_POLL_SECONDS = 0.5
# A list does not wait longer for the progress of one job.
_PROGRESS_TIMEOUT_SECONDS = 1.0
_POLL_TIMEOUT_SECONDS = 1.0
_RESUMABLE = (RunState.STOPPED, RunState.FAILED, RunState.INTERRUPTED)


def resume_hint(name: str) -> str:
    return f"To continue job {name}: elasticdl jobs resume {name}"


class LocalJob(Job):
    """`hosted`: resolves to the last status of a job that this process hosts. `reference`: how it was asked for: NAME,
    or NAME.NUMBER for one run.
    """

    def __init__(
        self,
        folder: JobFolder,
        *,
        store: JobStore,
        observer: JobObserver = SILENT,
        hosted: asyncio.Future[JobStatus] | None = None,
        reference: str = "",
    ) -> None:
        self.name = folder.name
        self.folder = folder
        self._store = store
        self._observer = observer
        self._hosted = hosted
        self._usage = ProcessUsage(folder)
        self._reference = reference or folder.name

    @property
    def location(self) -> str:
        return LOCATION

    @property
    def logs_location(self) -> str:
        return str(self.folder.logs_path)

    @property
    def missing_logs_hint(self) -> str:
        return f"They would be in {self.logs_location}."

    @property
    def recovery_hint(self) -> str:
        return f"`{self.command('resume')}` continues it from its newest checkpoint."

    def command(self, name: str) -> str:
        return f"elasticdl jobs {name} {self.name}"

    def resume_hint(self, state: RunState | None) -> str:
        return resume_hint(self.name) if state in _RESUMABLE else ""

    # -- reading ---------------------------------------------------------------------------------------------

    async def summary(self) -> JobSummary:
        record = self.folder.record()
        return JobSummary(
            job=self.name,
            kind=record.kind,
            state=RunState(self.folder.state()),
            created=record.created,
            ended=record.ended,
            message=record.message,
            location=LOCATION,
        )

    async def spec(self) -> JobSpec:
        return self.folder.spec()

    async def status(self) -> JobStatus:
        from elasticdl.catalog.local.master_client import current_status

        return await in_thread(lambda: current_status(self.folder))

    def _polled_status(self) -> JobStatus:
        """Returns the status for callers that poll: a master that ends during the call does not delay them."""
        from elasticdl.catalog.local.master_client import current_status

        return current_status(self.folder, timeout_seconds=_POLL_TIMEOUT_SECONDS)

    async def is_running(self) -> bool:
        return self.folder.is_running()

    async def log_names(self) -> tuple[str, ...]:
        return self._log_names()

    def _log_names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in self.folder.logs_path.glob("[!.]*.log")))

    async def usage(self) -> Mapping[str, NodeUsage]:
        return await in_thread(self._usage.read)

    async def progress(self) -> JobProgress:
        """Returns how far the job has come. Unknown, and no error, if its master does not answer at once."""
        if self.folder.is_running() and self.folder.master_address() is not None:
            from elasticdl.catalog.local.master_client import MasterClient

            def ask() -> JobProgress:
                with MasterClient(self.folder) as master:
                    return JobProgress.of(
                        master.status(timeout_seconds=_PROGRESS_TIMEOUT_SECONDS, brief=True)
                    )

            with contextlib.suppress(UserError):
                return await in_thread(ask)
        with contextlib.suppress(OSError, StatusError):
            return JobProgress.of(JobStatus.from_text(self.folder.status_path.read_text()))
        return JobProgress()

    async def logs(
        self, node: str = "", *, follow: bool = False, tail: int | None = None, since: float | None = None
    ) -> AsyncIterator[LogLine]:
        readers: dict[str, _LineReader] = {}
        while True:
            # Before the logs are read, so that the last lines of a job are not missed.
            running = self.folder.is_running()
            found: list[Iterable[LogLine]] = []
            for name in [node] if node else self._log_names():
                first = name not in readers
                reader = readers.setdefault(name, _LineReader(name, self.folder.log_path(name)))
                lines: Iterable[LogLine] = reader.read(last=not running or not follow)
                if first and tail is not None:
                    lines = deque(lines, maxlen=tail)
                found.append(lines)
            for line in lines_since(heapq.merge(*found, key=place), since):
                yield line
            if not follow or not running:
                return
            await asyncio.sleep(_FOLLOW_SECONDS)

    async def wait_until_started(self, *, retry: bool = False) -> StartReport:
        from elasticdl.catalog.local.master_client import MasterAway, last_status

        while self.folder.is_running():
            with contextlib.suppress(MasterAway):
                if (await in_thread(self._polled_status)).has_report:
                    return StartReport()
            await asyncio.sleep(_START_POLL_SECONDS)
        status = last_status(self.folder)
        if status.state is RunState.SUCCEEDED or status.has_report:
            # It was over within a moment.
            return StartReport(has_failed=status.state is RunState.FAILED)
        return StartReport(problem=status.message or f"it has {status.state}", has_failed=True)

    async def wait(self) -> JobStatus:
        if self._hosted is not None:
            return await asyncio.shield(self._hosted)
        from elasticdl.catalog.local.master_client import MasterAway, last_status

        while self.folder.is_running():
            # A master that does not answer is restarted by its host, which still holds the lock.
            with contextlib.suppress(MasterAway):
                status = await in_thread(self._polled_status)
                if status.has_report:
                    self._observer.progressed(status)
            await asyncio.sleep(_STATUS_POLL_SECONDS)
        status = last_status(self.folder)
        if not status.state.is_final:
            raise JobInterrupted(
                f"Job {self.name} is interrupted: the process that ran it is gone.", hint=self.recovery_hint
            )
        self._observer.ended(status, self.logs_location)
        return status

    # -- changing --------------------------------------------------------------------------------------------

    async def scale(
        self,
        *,
        num_workers: int | None = None,
        num_ps: int | None = None,
        victims: Sequence[str] = (),
    ) -> DesiredResult:
        from elasticdl.catalog.local.master_client import MasterClient

        def call() -> DesiredResult:
            with MasterClient(self.folder) as master:
                return master.scale(num_workers=num_workers, num_ps=num_ps, victims=victims)

        return await in_thread(call)

    async def stop(self, reason: str) -> None:
        from elasticdl.catalog.local.master_client import MasterClient

        def call() -> None:
            with MasterClient(self.folder) as master:
                master.stop(reason)

        await in_thread(call)
        while self.folder.is_running():
            await asyncio.sleep(_STOP_POLL_SECONDS)

    async def resume(self) -> None:
        from elasticdl.catalog.local import background_host

        await in_thread(lambda: background_host.resume(self._reference, store=self._store))

    async def delete(self) -> None:
        self._store.delete(self._reference)


class _LineReader:
    """The lines of a log that is being written: only complete ones, until it is over."""

    def __init__(self, node: str, path: Path) -> None:
        self._node = node
        self._reader = LogReader(path)
        self._clock = LineClock()
        self._rest = b""
        self._rest_written: float | None = None

    def read(self, *, last: bool) -> Iterator[LogLine]:
        while pieces := self._reader.read_timed():
            for written, piece in pieces:
                # A line counts as of its first character.
                written_first = self._rest_written if self._rest else written
                *whole, self._rest = (self._rest + piece).split(b"\n")
                for number, line in enumerate(whole):
                    yield self._line(line, written if number else written_first)
                self._rest_written = written if whole else written_first
        if last and self._rest:
            yield self._line(self._rest, self._rest_written)
            self._rest = b""

    def _line(self, line: bytes, written: float | None) -> LogLine:
        text = line.decode(errors="replace").removesuffix("\r")
        return LogLine(node=self._node, text=text, moment=self._clock.moment(text, written))
