"""The folder of one run of a job on this machine: all that is known of it, while it runs and afterwards.

A job runs as long as a process holds the lock in its folder. The lock is the kernel's and goes with the
process that took it, however that ends; the record is not consulted for that. So a job whose record
says "running" while its lock is free is reported as interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from elasticdl.errors import DiskFull, UserError
from elasticdl.jobs.spec import JobSpec, from_yaml
from elasticdl.jobs.status import RunState

# In the folder of a job (`jobs/history`).
HISTORY_NAME = "history.jsonl"
RecordedState = Literal["running", "succeeded", "failed", "stopped"]

# sockaddr_un has room for 104 bytes on some systems and 108 on others, the final zero included.
_LONGEST_SOCKET_PATH = 100


@dataclass(frozen=True, kw_only=True)
class JobEntry:
    """The entry of a local job (`record.json`). Times are seconds since 1970."""

    kind: str
    state: RecordedState
    created: float
    ended: float | None = None
    message: str = ""
    # 1, and one more for each time that the job was resumed.
    attempts: int = 1
    # Where it was started: paths in its flags are relative to this. Empty in records of older versions.
    directory: str = ""


class JobFolder:
    """The files of a job by their meaning. `name`: what commands call it (`JobStore`), by default as its folder."""

    def __init__(self, path: Path, *, name: str = "") -> None:
        self.path = path
        self._name = name
        self._lock: int | None = None

    @property
    def name(self) -> str:
        return self._name or self.path.name

    def moved(self, path: Path, *, name: str) -> None:
        """The folder is in another place now."""
        self.path, self._name = path, name

    @property
    def spec_path(self) -> Path:
        return self.path / "spec.yaml"

    @property
    def record_path(self) -> Path:
        return self.path / "record.json"

    @property
    def logs_path(self) -> Path:
        return self.path / "logs"

    def log_path(self, node: str) -> Path:
        return self.logs_path / f"{node}.log"

    @property
    def journal_path(self) -> Path:
        return self.path / "journal"

    @property
    def token_path(self) -> Path:
        return self.path / "token"

    @property
    def tls_folder(self) -> Path:
        """The certificates of a job on several machines; others have none."""
        return self.path / "tls"

    @property
    def master_address_path(self) -> Path:
        return self.path / "master.addr"

    @property
    def tensorboard_path(self) -> Path:
        return self.path / "tensorboard"

    @property
    def status_path(self) -> Path:
        """The last word on a job that has ended."""
        return self.path / "status.json"

    @property
    def history_path(self) -> Path:
        """Returns the path of the history of nodes, events and figures; jobs of older versions have none."""
        return self.path / HISTORY_NAME

    @property
    def host_log_path(self) -> Path:
        """The output of a host in the background."""
        return self.path / "host.log"

    @property
    def lock_path(self) -> Path:
        return self.path / "lock"

    # -- what is in them -------------------------------------------------------------------------------------

    def spec(self) -> JobSpec:
        return from_yaml(self._read(self.spec_path), source=str(self.spec_path))

    def token(self) -> str:
        return self._read(self.token_path).strip()

    def master_address(self) -> str | None:
        """Returns the last address of the master; None before it has started."""
        try:
            return self.master_address_path.read_text().strip() or None
        except FileNotFoundError:
            return None

    def record(self) -> JobEntry:
        try:
            return JobEntry(**json.loads(self._read(self.record_path)))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"The record of job {self.name} is damaged ({self.record_path}): {error}.",
                hint=f"`elasticdl jobs delete {self.name}` removes the job.",
            ) from None

    def write_record(self, record: JobEntry) -> None:
        with file_errors_as_user_errors(self.path):
            write_atomically(self.record_path, json.dumps(asdict(record), indent=1) + "\n")

    def finish(self, state: RecordedState, *, message: str = "", now: float) -> None:
        """Writes down how the job ended."""
        self.write_record(replace(self.record(), state=state, ended=now, message=message))

    def reopen(self) -> None:
        """Begins another attempt of a run that has ended. The lock must be held."""
        before = self.record()
        attempts = before.attempts + 1
        self.write_record(replace(before, state="running", ended=None, message="", attempts=attempts))
        with file_errors_as_user_errors(self.path):
            # A file of the previous attempt.
            self.status_path.unlink(missing_ok=True)
            self.master_address_path.unlink(missing_ok=True)

    def state(self) -> RunState:
        # The lock first: a job that ends between the two looks is then seen as ended, not as interrupted.
        running = self.is_running()
        recorded = self.record().state
        return RunState.INTERRUPTED if recorded == "running" and not running else RunState(recorded)

    # -- who runs it -----------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Makes this process the one that runs the job, until `release` or its end."""
        with self._guard():
            lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise UserError(f"Job {self.name} is running already.") from None
            self._lock = lock

    def adopt_lock(self, lock: int) -> None:
        """Takes over the lock from the process that started this one, and passed on its descriptor."""
        os.set_inheritable(lock, False)
        self._lock = lock

    @property
    def lock(self) -> int:
        """The descriptor of the lock, for a process that takes over the job. The lock is held until both close it."""
        assert self._lock is not None
        return self._lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_running(self) -> bool:
        with self._guard():
            return self.is_locked()

    def is_locked(self) -> bool:
        """Like `is_running`, for a caller that holds the guard of the jobs."""
        try:
            lock = os.open(self.lock_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _guard(self) -> contextlib.AbstractContextManager[None]:
        return guarded_jobs(self.path.parent)

    # -- the socket ------------------------------------------------------------------------------------------

    def socket_path(self) -> Path:
        """Returns the socket of the job's host: in the folder, or elsewhere if its path is too long for one.

        The other place is in a folder that belongs to this user alone, which is made here.
        """
        here = self.path / "host.sock"
        if len(os.fsencode(here)) <= _LONGEST_SOCKET_PATH:
            return here
        folder = Path(tempfile.gettempdir()) / f"elasticdl-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise UserError(f"{folder} is not a folder that belongs to you alone, so no socket is put there.")
        digest = hashlib.sha256(os.fsencode(self.path.resolve())).hexdigest()[:16]
        return folder / f"{digest}.sock"

    def _read(self, path: Path) -> str:
        try:
            return path.read_text()
        except FileNotFoundError:
            raise UserError(f"Job {self.name} has no {path.name} ({path}).") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}.") from None


@contextlib.contextmanager
def guarded_jobs(folder: Path) -> Iterator[None]:
    """Serializes checks of the locks of the jobs in a folder, which take them for a moment and would look like running
    jobs. Not reentrant.
    """
    guard = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield
    finally:
        os.close(guard)


@contextlib.contextmanager
def file_errors_as_user_errors(path: Path) -> Iterator[None]:
    """Turns file system errors into `UserError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"There is no space left for the job's files in {path}.",
                hint="Free some, `elasticdl jobs delete` old jobs, or set ELASTICDL_HOME to another place.",
            ) from error
        raise UserError(
            f"The job's files cannot be written: {error.filename or path}: {error.strerror}.",
            hint="ELASTICDL_HOME says where they go; the default is ~/.elasticdl.",
        ) from error


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file as a whole: a reader, or a kill, finds the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
