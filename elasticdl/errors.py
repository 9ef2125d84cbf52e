"""The error that is meant for people, and the exit codes of the commands. Every package may import this module.

Whatever a user can cause (a wrong flag, a missing file, a module that does not import, a full disk) is raised as a
`UserError`: the message says what is wrong and where, the hint what to do about it. The command line prints both and
exits with `ExitCode.BAD_INPUT`, without a traceback.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """How an `elasticdl` command ends. Exit codes of a job's nodes are in `platforms/platform.py`."""

    SUCCESS = 0
    JOB_FAILED = 1
    BAD_INPUT = 2
    # As timeout(1) reports it: `elasticdl jobs wait --timeout`.
    TIMED_OUT = 124
    # EX_SOFTWARE of sysexits.h: a defect of elasticdl.
    CRASHED = 70
    # As shells report a process that SIGINT has terminated.
    INTERRUPTED = 130


class UserError(Exception):
    """Something the user can put right."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class DiskFull(UserError):
    """There is no room for files of a job: it may have been started, so it counts as failed."""

    exit_code = ExitCode.JOB_FAILED
