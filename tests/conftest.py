"""What holds for all tests: signals have their default handlers, in any environment; no test depends on the speed of
the machine; a forked process leaves alone what it inherited; `caplog` has no lines of earlier tests.

A shell that runs tests in the background has interrupts and hang-ups ignored. Processes that tests start would
inherit that, and ignore such a signal. Hypothesis, by default, fails a test whose examples take long to make or to
try. Tests run masters in their own process, where a job has them in another one: what they leave for the garbage
collector waits, when it is released, for a thread of gRPC. A forked process has no such thread: it would wait forever.
Threads of earlier tests, such as connections that end, may log at any time.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Before a framework is imported. As many threads as processors, in each of several processes, wait for each other in
# busy loops: PyTorch's tests took five times the processor time, and ten times as long on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

os.register_at_fork(after_in_child=gc.freeze)


class EarlierThreads(logging.Filter):
    """Rejects the records of threads that were running before the test."""

    def __init__(self) -> None:
        super().__init__()
        # Objects, not identifiers: the system gives those of ended threads to new ones.
        self._threads = {*threading.enumerate()} - {threading.current_thread()}

    def filter(self, record: logging.LogRecord) -> bool:
        return threading.current_thread() not in self._threads


@pytest.fixture(autouse=True)
def earlier_threads() -> EarlierThreads:
    """Made before the fixtures that start threads of the test."""
    return EarlierThreads()


@pytest.fixture
def caplog(
    earlier_threads: EarlierThreads, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    handler = caplog.handler
    handler.addFilter(earlier_threads)
    yield caplog
    handler.removeFilter(earlier_threads)
