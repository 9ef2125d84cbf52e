"""Starting what is measured, waiting for it without guessing how long it takes, and ending it whatever
happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parent.parent
# Only ends what hangs; nothing measured comes near it.
DEADLINE = 300.0

_Found = TypeVar("_Found")


class Stuck(Exception):
    """Something that was to happen did not."""


def wait_until(
    condition: Callable[[], _Found | None], what: str, seconds: float = DEADLINE, every: float = 0.005
) -> _Found:
    """The first result that is true. Looks often enough that the time it happened is known to a few ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(every)
    raise Stuck(f"{what}: not within {seconds:.0f} s")


@contextlib.contextmanager
def running(
    command: list[str], *, log: Path, environment: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to a log and is ended, with its whole group, when the block is left."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(process: subprocess.Popen[bytes], log: Path, seconds: float = DEADLINE) -> None:
    """Waits for a process that has to succeed."""
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Stuck(f"{process.args!r} does not end:\n{tail(log)}") from None
    if code != 0:
        raise Stuck(f"{process.args!r} ended with {code}:\n{tail(log)}")


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def with_environment(**wanted: str) -> list[psutil.Process]:
    """All processes that were started with these variables."""
    found = []
    for process in psutil.process_iter():
        try:
            variables = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if all(variables.get(name) == value for name, value in wanted.items()):
            found.append(process)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def elasticdl(*arguments: str) -> list[str]:
    """The command as a user types it."""
    return [sys.executable, "-m", "elasticdl.cli.main", *arguments]
