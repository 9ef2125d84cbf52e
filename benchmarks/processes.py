"""Starts the processes under test, waits for events without guessed delays, and kills everything at the end."""

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
# Only for what hangs; no measurement takes nearly as long.
DEADLINE = 300.0

_Found = TypeVar("_Found")


class Stuck(Exception):
    """An expected event did not happen in time."""


def wait_until(
    condition: Callable[[], _Found | None], what: str, seconds: float = DEADLINE, every: float = 0.005
) -> _Found:
    """Returns the first true result. Polls often enough to time the event to a few ms."""
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
    """A process that writes to a log and is killed with its whole group at the end of the block."""
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
    """Waits for a process, which must succeed."""
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Stuck(f"{process.args!r} does not end:\n{tail(log)}") from None
    if code != 0:
        raise Stuck(f"{process.args!r} ended with {code}:\n{tail(log)}")


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def with_environment(**wanted: str) -> list[psutil.Process]:
    """Returns all processes that were started with these variables."""
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
    """Returns the command as a user types it."""
    return [sys.executable, "-m", "elasticdl.cli.main", *arguments]
