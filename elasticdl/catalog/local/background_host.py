"""Hosts a job in a process of its own, in the background: the job survives the terminal and the ssh connection it was
started from.

`start` makes that process: a new session without a terminal, which ignores SIGHUP and gets the lock of the job folder
from its parent, so that the job is never without a host that others can see. Its output, what a display in the
foreground would note, goes to `host.log` in the folder. `python -m elasticdl.catalog.local.background_host FOLDER NAME
LOCK` is its program.

Failure modes
    The process cannot be started: `UserError`, and the record says that the job has failed. It ends before the job
    does: as with any host no process of the job survives, the record says `interrupted`, and the job can be resumed.
    SIGTERM saves a checkpoint and stops the job.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elasticdl.catalog.local.free_cores import free_cores, with_free_cores
from elasticdl.catalog.local.preflight import check_job
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus


def submit(spec: JobSpec, *, store: JobStore, cores: Callable[[], int] = free_cores) -> JobFolder:
    """Checks and sizes the job, creates its folder and starts a host for it in the background."""
    check_job(spec)
    folder = store.create(with_free_cores(spec, cores()))
    start(folder)
    return folder


def resume(name: str, *, store: JobStore) -> JobFolder:
    """Begins another attempt of a job that has ended without success, with a host in the background."""
    store.check_resumable(store.get(name))
    folder = store.reopen(name)
    start(folder)
    return folder


def start(folder: JobFolder) -> None:
    """Starts the host of a job whose lock this process holds, and passes the lock on."""
    arguments = [str(folder.path), folder.name, str(folder.lock)]
    try:
        with open(folder.host_log_path, "ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", __name__, *arguments],
                cwd=folder.record().directory or None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(folder.lock,),
            )
    except OSError as error:
        message = (
            f"The host of the job cannot be started: {error.filename or sys.executable}: {error.strerror}."
        )
        folder.finish("failed", message=message, now=time.time())
        raise UserError(message) from error
    finally:
        folder.release()


log = logging.getLogger("elasticdl.host")


class _HostLog(JobObserver):
    """Logs notes and the end of the job."""

    def note(self, text: str) -> None:
        log.info("%s", text)

    def ended(self, status: JobStatus, logs: str) -> None:
        log.info("Job %s has %s. %s", status.job, status.state, status.message)


def main() -> int:
    path, name, lock = sys.argv[1:]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Imported here: the process that starts this one does not need it.
    from elasticdl.catalog.local.runner import LocalRunner

    folder = JobFolder(Path(path), name=name)
    folder.adopt_lock(int(lock))
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log.info("Hosting job %s: process %d, in %s", name, os.getpid(), os.getcwd())
    try:
        spec = folder.spec()
        if folder.record().attempts > 1:
            # The process that asked for this may have been elsewhere.
            check_job(spec)
        LocalRunner(spec, folder, _HostLog()).run()
    except UserError as error:
        log.error("%s", error)
        if folder.record().state == "running":
            folder.finish("failed", message=str(error), now=time.time())
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
