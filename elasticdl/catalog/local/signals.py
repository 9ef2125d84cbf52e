"""Signals that ask a process to stop, while it hosts a job."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Calls `handle` for every SIGINT, SIGTERM and SIGHUP. Does nothing outside the main thread: signals cannot be
    handled there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Under nohup a job outlives its terminal.
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: handle()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
