"""The jobs of this machine, for the commands that look at jobs or change them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.catalog.local.master_client import MasterControl, current_status
from elasticdl.catalog.job import JobView, LogLine, Summary
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.platforms.local.log_files import LogReader

PLACE = "here"
# How soon a new line of a followed log is seen.
_FOLLOW_SECONDS = 0.3


def local_jobs() -> list[JobView]:
    return [LocalJob(folder) for folder in JobStore().list()]


class LocalJob(JobView):
    def __init__(self, folder: JobFolder) -> None:
        self.name = folder.name
        self.folder = folder

    @property
    def logs_place(self) -> str:
        return str(self.folder.logs_path)

    @property
    def without_logs(self) -> str:
        return f"They would be in {self.logs_place}."

    @property
    def without_master(self) -> str:
        return "Start a new one from its last checkpoint with --checkpoint_dir_for_init."

    def summary(self) -> Summary:
        record = self.folder.record()
        return Summary(
            job=self.name,
            kind=record.kind,
            state=self.folder.state(),
            created=record.created,
            ended=record.ended,
            message=record.message,
            place=PLACE,
        )

    def status(self) -> dict[str, Any]:
        return current_status(self.folder)

    def is_running(self) -> bool:
        return self.folder.is_running()

    def log_names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.logs_path.glob("[!.]*.log"))

    def log_lines(self, node: str, *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        followed: dict[str, _Lines] = {}
        while True:
            # Looked at before the logs, so that what a job says last is not missed.
            running = self.is_running()
            for name in [node] if node else self.log_names():
                first = name not in followed
                reader = followed.setdefault(name, _Lines(self.folder.log_path(name)))
                lines = reader.read(last=not running or not follow)
                if first and tail is not None:
                    lines = lines[len(lines) - min(tail, len(lines)) :]
                for line in lines:
                    yield LogLine(node=name, text=line)
            if not follow or not running:
                return
            time.sleep(_FOLLOW_SECONDS)

    def scale(self, *, num_workers: int | None, num_ps: int | None) -> str:
        with MasterControl(self.folder) as master:
            return master.scale(num_workers=num_workers, num_ps=num_ps)

    def stop(self, reason: str) -> None:
        with MasterControl(self.folder) as master:
            master.stop(reason)
        while self.is_running():
            time.sleep(0.1)

    def delete(self) -> None:
        JobStore().delete(self.name)


class _Lines:
    """The lines of a log that is being written: only whole ones, until it is over."""

    def __init__(self, path: Path) -> None:
        self._reader = LogReader(path)
        self._rest = b""

    def read(self, *, last: bool) -> list[str]:
        pieces = [self._rest]
        while piece := self._reader.read():
            pieces.append(piece)
        data = b"".join(pieces)
        end = len(data) if last else data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end].decode(errors="replace").splitlines()
