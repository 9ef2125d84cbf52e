"""The jobs of this machine, running and finished: a folder each, until it is deleted."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.job_folder import JobEntry, JobFolder, file_errors_as_user_errors
from elasticdl.jobs.spec import JobSpec, to_yaml


def default_home() -> Path:
    """$ELASTICDL_HOME, or ~/.elasticdl."""
    home = os.environ.get("ELASTICDL_HOME")
    return Path(home).expanduser().absolute() if home else Path.home() / ".elasticdl"


class JobStore:
    """The folder that holds the folders of the jobs."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = default_home() if home is None else home
        self.path = self.home / "jobs"

    def create(self, spec: JobSpec, *, now: float | None = None) -> JobFolder:
        """A new job, which this process runs from now on: it holds the lock until `release` or its end.

        The folder appears under its name complete and locked, or not at all.
        """
        with file_errors_as_user_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkdtemp makes it private: a job's token and its logs are for its user only.
            draft = JobFolder(Path(tempfile.mkdtemp(prefix=".new-", dir=self.path)))
            try:
                self._fill(draft, spec, time.time() if now is None else now)
                draft.path.rename(self.path / spec.job_name)
            except OSError as error:
                draft.release()
                shutil.rmtree(draft.path, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise self._in_use(spec.job_name) from None
                raise
        draft.path = self.path / spec.job_name
        return draft

    def get(self, name: str) -> JobFolder:
        folder = JobFolder(self.path / name)
        names = self._names()
        if name not in names:
            hint = f"The jobs of this machine are in {self.path}; `elasticdl jobs list` lists them."
            raise UserError(f"There is no job {name!r}.{did_you_mean(name, names)}", hint=hint)
        return folder

    def list(self) -> tuple[JobFolder, ...]:
        """All jobs, the oldest first."""

        def age(folder: JobFolder) -> tuple[float, str]:
            try:
                return folder.record().created, folder.name
            except UserError:
                return 0.0, folder.name

        return tuple(sorted((JobFolder(self.path / name) for name in self._names()), key=age))

    def delete(self, name: str) -> None:
        """Removes all traces of a job, its checkpoints and its model excepted. Refuses while it runs."""
        folder = self.get(name)
        try:
            folder.acquire()
        except UserError:
            raise UserError(
                f"Job {name} is running.", hint=f"`elasticdl jobs stop {name}` stops it."
            ) from None
        try:
            with file_errors_as_user_errors(folder.path):
                folder.socket_path().unlink(missing_ok=True)
                # Out of sight first: a job that is half removed must not be found.
                grave = Path(tempfile.mkdtemp(prefix=".old-", dir=self.path))
                folder.path.rename(grave / name)
                shutil.rmtree(grave)
        finally:
            folder.release()

    def _fill(self, folder: JobFolder, spec: JobSpec, now: float) -> None:
        folder.acquire()
        folder.logs_path.mkdir()
        folder.journal_path.mkdir()
        folder.tensorboard_path.mkdir()
        folder.spec_path.write_text(to_yaml(spec))
        token = os.open(folder.token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(token, "w") as file:
            file.write(secrets.token_hex(32))
        folder.write_record(JobEntry(kind=spec.kind, state="running", created=now))

    def _names(self) -> tuple[str, ...]:
        try:
            children = [child for child in self.path.iterdir() if child.is_dir()]
        except FileNotFoundError:
            return ()
        return tuple(child.name for child in children if not child.name.startswith("."))

    def _in_use(self, name: str) -> UserError:
        running = JobFolder(self.path / name).is_running()
        state = "is running" if running else "has run before"
        first = f"`elasticdl jobs stop {name}` and then " if running else ""
        return UserError(
            f"The job name {name} is in use: a job of that name {state}.",
            hint=f"Choose another --job_name, or remove that job: {first}`elasticdl jobs delete {name}`.",
        )


def new_suffix() -> str:
    """Returns a suffix that makes the default names of jobs unique."""
    return secrets.token_hex(3)
