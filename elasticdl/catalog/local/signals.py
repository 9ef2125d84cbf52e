"""Signals that ask a process to stop, while it hosts a job, and the loss of its terminal.

A terminal that closes sends SIGHUP, often more than once: the kernel to the processes in its foreground, the shell to
its jobs. From then on writing to it fails, which must not end a job that is saving its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Calls `handle` for every SIGINT and SIGTERM. Does nothing outside the main thread: signals cannot be handled
    there.
    """
    with _handled((signal.SIGINT, signal.SIGTERM), handle):
        yield


@contextlib.contextmanager
def hang_ups(handle: Callable[[], None]) -> Iterator[None]:
    """Calls `handle` for every SIGHUP. Under nohup a job outlives its terminal, so nothing is done there, nor outside
    the main thread.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with _handled(() if ignored else (signal.SIGHUP,), handle):
        yield


def leave_terminal() -> None:
    """Sends output that would go to a terminal nowhere, for good: the terminal is closed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is None:
                continue
            with contextlib.suppress(OSError, ValueError):
                number = stream.fileno()
                # Not by `isatty`, which says no of a terminal that is closed already.
                if stat.S_ISCHR(os.fstat(number).st_mode):
                    os.dup2(nowhere, number)
    finally:
        os.close(nowhere)


@contextlib.contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handle: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: handle()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
