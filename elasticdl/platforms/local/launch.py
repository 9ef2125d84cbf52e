"""Prepares a host before its job can run: the job's lock, its socket, and a keeper that has both.

All failures here have causes in the user's environment (a full disk, a path too long, the same job running
already), and are reported as `UserError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from elasticdl.errors import UserError

KEEPER_LOG = ".keeper.log"
_LOCK = ".lock"
_PROBE = ".probe"

# Enough for the first words of every node; a disk with less is as good as full.
_PROBE_BYTES = 64 * 1024

# Some network file systems know no locks. A job is better run without one than not at all.
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

# The size of sun_path, less the zero at its end.
_LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107

# Isolated and without site-packages (-I, -S): it starts sooner, and nothing that is set up in the user's
# environment can get into the one process that must not fail.
_SUPERVISOR = "elasticdl.platforms.local.supervisor"
_KEEPER_PROGRAM = f"import sys; sys.path.append(sys.argv.pop(1)); from {_SUPERVISOR} import main; main()"


def prepare_log_folder(folder: Path) -> None:
    """Makes the folder if need be, and sees that there is room in it."""
    probe = folder / _PROBE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "Free some space there, or set ELASTICDL_HOME to a folder on another disk."
        raise UserError(f"Logs cannot be written to {folder}: {error.strerror}.", hint=hint) from error


def take_lock(folder: Path, *, seconds: float = 5.0) -> int:
    """The descriptor that holds the lock of the job, for the keeper to inherit; the caller closes its own."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"The job cannot be locked with {error.filename}: {error.strerror}.") from error
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # After a crash the keeper of before may still be clearing up. A lock cannot be waited for with a
            # limit other than by asking again.
            if time.monotonic() > deadline:
                holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
                os.close(lock)
                raise UserError(
                    f"The job with logs in {folder} is already running (process {holder}).",
                    hint="Stop it first, or give this one another name.",
                ) from None
            time.sleep(0.02)
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                os.close(lock)
                raise UserError(f"The job cannot be locked in {folder}: {error.strerror}.") from error
            return lock
        else:
            os.pwrite(lock, f"{os.getpid():>10}\n".encode(), 0)
            return lock


def listen(path: Path) -> socket.socket:
    """Returns a socket for the job's master that only this user can connect to. The lock must be held."""
    length = len(os.fsencode(path))
    if length > _LONGEST_SOCKET_PATH:
        raise UserError(
            f"The path {path} is too long for a socket: {length} bytes, {_LONGEST_SOCKET_PATH} are possible.",
            hint="Use a shorter job name, or set ELASTICDL_HOME to a folder with a shorter path.",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()  # of a host that is gone, or the lock would not be ours
        with contextlib.suppress(OSError):  # Linux gives the socket file this mode from the start
            os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UserError(f"A socket cannot be made at {path}: {error.strerror}.") from error
    return listener


def start_keeper(
    *, listener: socket.socket, lock: int, log_folder: Path, log_bytes: int, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The keeper's process and the host's end of the socket to it. It ends when that end is closed."""
    ours, its = socket.socketpair()
    arguments = [its.fileno(), listener.fileno(), lock, os.getpid(), log_folder, log_bytes]
    try:
        with open(log_folder / KEEPER_LOG, "ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    *("-I", "-S", "-c", _KEEPER_PROGRAM),
                    str(Path(__file__).parents[3]),
                    *map(str, arguments),
                ],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(its.fileno(), listener.fileno(), lock),
            )
    except OSError as error:
        ours.close()
        what = error.filename or sys.executable
        raise UserError(f"The job's processes cannot be started: {what}: {error.strerror}.") from error
    finally:
        its.close()
    return process, ours
