"""The jobs of this machine, running and finished: a folder each run, until it is deleted.

A name can be used again when its job has ended: the next run gets a folder of its own (`NAME`, `NAME.2`, `NAME.3`), so
that paths into the folder of an earlier run, such as those of its checkpoints, stay what they were. NAME means the
newest run, NAME.1 the first one. Job names have no dots.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.job_folder import JobEntry, JobFolder, file_errors_as_user_errors, guarded_jobs
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.jobs.status import RunState


def default_home() -> Path:
    """$ELASTICDL_HOME, or ~/.elasticdl."""
    home = os.environ.get("ELASTICDL_HOME")
    return Path(home).expanduser().absolute() if home else Path.home() / ".elasticdl"


@dataclass(frozen=True, kw_only=True, order=True)
class JobRun:
    """A run of a job; the first is number 1."""

    job: str
    number: int

    @classmethod
    def of_folder(cls, name: str) -> JobRun:
        job, dot, number = name.rpartition(".")
        return cls(job=job, number=int(number)) if dot and number.isdigit() else cls(job=name, number=1)

    @property
    def folder(self) -> str:
        return self.job if self.number == 1 else f"{self.job}.{self.number}"

    @property
    def exact_name(self) -> str:
        """Means this run also when there are newer ones."""
        return f"{self.job}.{self.number}"


class JobStore:
    """The folder that holds the folders of the jobs."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = default_home() if home is None else home
        self.path = self.home / "jobs"

    def create(self, spec: JobSpec, *, now: float | None = None) -> JobFolder:
        """A new run, which this process runs from now on: it holds the lock until `release` or its end.

        The folder appears under its name complete and locked, or not at all. Raises `UserError` if a job of that name
        is running.
        """
        name = spec.job_name
        with file_errors_as_user_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkdtemp makes it private: a job's token and its logs are for its user only.
            draft = JobFolder(Path(tempfile.mkdtemp(prefix=".new-", dir=self.path)))
            try:
                self._fill(draft, spec, time.time() if now is None else now)
                with guarded_jobs(self.path):
                    runs = self._runs(name)
                    self._check_idle(runs)
                    number = runs[-1].number + 1 if runs else 1
                    path = self.path / JobRun(job=name, number=number).folder
                    draft.path.rename(path)
            except (OSError, UserError):
                draft.release()
                shutil.rmtree(draft.path, ignore_errors=True)
                raise
        draft.moved(path, name=name)
        return draft

    def get(self, name: str) -> JobFolder:
        """Returns the newest run of that name, or the one that NAME.NUMBER means. It is called as in `list`."""
        found = self._find(name)
        if found is None:
            names = [folder.name for folder in self.list()]
            hint = f"The jobs of this machine are in {self.path}; `elasticdl jobs list` lists them."
            raise UserError(f"There is no job {name!r}.{did_you_mean(name, names)}", hint=hint)
        is_newest = found == self._runs(found.job)[-1]
        return self._folder(found, name=found.job if is_newest else found.exact_name)

    def list(self) -> tuple[JobFolder, ...]:
        """All runs of all jobs, the oldest first. The newest run of a job has its name, an older one NAME.NUMBER."""

        def age(folder: JobFolder) -> tuple[float, str]:
            try:
                return folder.record().created, folder.name
            except UserError:
                return 0.0, folder.name

        return tuple(sorted(self.folders(), key=age))

    def folders(self) -> tuple[JobFolder, ...]:
        """Returns the folders by name and number, without reading them."""
        runs = sorted(self._all_runs())
        newest = {run.job: run for run in runs}
        return tuple(
            self._folder(run, name=run.job if run is newest[run.job] else run.exact_name) for run in runs
        )

    def exact_name(self, folder: JobFolder) -> str:
        """Returns the name that means this run also when there are newer ones."""
        return JobRun.of_folder(folder.path.name).exact_name

    def reopen(self, name: str) -> JobFolder:
        """Begins another attempt of a run that has ended without success; this process runs it from now on.

        Raises `UserError` if it has succeeded, or runs, or another run of that name does.
        """
        folder = self.get(name)
        self.check_resumable(folder)
        folder.acquire()
        try:
            with guarded_jobs(self.path):
                own = JobRun.of_folder(folder.path.name)
                self._check_idle([run for run in self._runs(own.job) if run != own])
            folder.reopen()
        except UserError:
            folder.release()
            raise
        return folder

    def check_resumable(self, folder: JobFolder) -> None:
        """Raises `UserError` for a job that runs, or has nothing left to do."""
        state = folder.state()
        if state is RunState.RUNNING:
            raise UserError(
                f"Job {folder.name} is running.", hint=f"`elasticdl jobs attach {folder.name}` shows it."
            )
        if state is RunState.SUCCEEDED:
            raise UserError(
                f"Job {folder.name} is over: it has succeeded.",
                hint="Start it again under the same name: this run stays in the history.",
            )

    def delete(self, name: str) -> None:
        """Removes all traces of a job and its earlier runs, or of the one run that NAME.NUMBER means; checkpoints and
        models elsewhere excepted. Refuses while one of them runs.
        """
        folder = self.get(name)
        run = JobRun.of_folder(folder.path.name)
        runs = [run] if name == run.exact_name else self._runs(run.job)
        folders = [self._folder(one, name=name) for one in runs]
        try:
            for one in folders:
                try:
                    one.acquire()
                except UserError:
                    raise UserError(
                        f"Job {name} is running.", hint=f"`elasticdl jobs stop {name}` stops it."
                    ) from None
            for one in folders:
                self._remove(one)
        finally:
            for one in folders:
                one.release()

    def _remove(self, folder: JobFolder) -> None:
        with file_errors_as_user_errors(folder.path):
            folder.socket_path().unlink(missing_ok=True)
            # Out of sight first: a job that is half removed must not be found.
            grave = Path(tempfile.mkdtemp(prefix=".old-", dir=self.path))
            folder.path.rename(grave / folder.path.name)
            shutil.rmtree(grave)

    def _fill(self, folder: JobFolder, spec: JobSpec, now: float) -> None:
        folder.acquire()
        folder.logs_path.mkdir()
        folder.journal_path.mkdir()
        folder.tensorboard_path.mkdir()
        folder.spec_path.write_text(to_yaml(spec))
        token = os.open(folder.token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(token, "w") as file:
            file.write(secrets.token_hex(32))
        if spec.nodes.hosts:
            _write_certificates(folder.tls_folder, spec.job_name)
        directory = ""
        with contextlib.suppress(FileNotFoundError):
            directory = os.getcwd()
        folder.write_record(JobEntry(kind=spec.kind, state="running", created=now, directory=directory))

    # -- runs ------------------------------------------------------------------------------------------------

    def _folder(self, run: JobRun, *, name: str) -> JobFolder:
        return JobFolder(self.path / run.folder, name=name)

    def _all_runs(self) -> Iterator[JobRun]:
        try:
            children = [child for child in self.path.iterdir() if child.is_dir()]
        except FileNotFoundError:
            return
        yield from (JobRun.of_folder(child.name) for child in children if not child.name.startswith("."))

    def _runs(self, job: str) -> Sequence[JobRun]:
        return sorted(run for run in self._all_runs() if run.job == job)

    def _find(self, name: str) -> JobRun | None:
        if runs := self._runs(name):
            return runs[-1]
        exact = JobRun.of_folder(name)
        return exact if exact in self._runs(exact.job) and name == exact.exact_name else None

    def _check_idle(self, runs: Iterable[JobRun]) -> None:
        """Raises `UserError` if one of these runs is running. The guard must be held."""
        for run in runs:
            if self._folder(run, name=run.job).is_locked():
                raise UserError(
                    f"The job name {run.job} is in use: a job of that name is running.",
                    hint="Choose another --job_name, or stop that job and take its place with --replace.",
                )


def _write_certificates(folder: Path, job_name: str) -> None:
    # Few jobs need them.
    from elasticdl.wire.certificates import make_certificates

    ca_crt, tls_crt, tls_key = make_certificates(f"elasticdl-{job_name}", extra="ssh")
    folder.mkdir(mode=0o700)
    for name, text in (("ca.crt", ca_crt), ("tls.crt", tls_crt), ("tls.key", tls_key)):
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)


def new_suffix() -> str:
    """Returns a suffix that makes the default names of jobs unique."""
    return secrets.token_hex(3)
