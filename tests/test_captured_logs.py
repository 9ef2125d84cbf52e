"""A test sees the log lines of its own threads only: `caplog` leaves out those of threads of earlier tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

LOGGER = logging.getLogger("elasticdl.tests")


def log_when(asked: threading.Event, logged: threading.Event) -> threading.Thread:
    def run() -> None:
        asked.wait(60)
        LOGGER.warning("from a thread")
        logged.set()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def earlier() -> Iterator[tuple[threading.Event, threading.Event]]:
    """A thread that was there before the test."""
    asked, logged = threading.Event(), threading.Event()
    thread = log_when(asked, logged)
    yield asked, logged
    asked.set()
    thread.join()


def test_lines_of_earlier_threads_are_left_out(
    earlier: tuple[threading.Event, threading.Event], caplog: pytest.LogCaptureFixture
) -> None:
    asked, logged = earlier
    asked.set()
    assert logged.wait(60)
    LOGGER.warning("from the test")
    assert caplog.messages == ["from the test"]


def test_lines_of_threads_of_the_test_are_captured(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()
    asked.set()
    log_when(asked, threading.Event()).join()
    assert caplog.messages == ["from a thread"]
