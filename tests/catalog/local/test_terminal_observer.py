"""A host whose terminal is closed goes on without it; other errors of its observer are not hidden."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from elasticdl.catalog.local.terminal_observer import TerminalObserver
from elasticdl.catalog.observer import JobObserver

# Prints to its terminal before and after that is closed.
HOST = """
import sys
from elasticdl.catalog.local.terminal_observer import TerminalObserver
from elasticdl.catalog.observer import JobObserver

class Printer(JobObserver):
    def note(self, text):
        print(text, flush=True)

observer = TerminalObserver(Printer())
observer.note("open")
sys.stdin.readline()
observer.note("closed")
print("by others", flush=True)
"""


def test_output_to_a_closed_terminal_is_dropped() -> None:
    ours, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=its, stderr=subprocess.PIPE, text=True
    ) as host:
        os.close(its)
        with open(os.dup(ours), "rb", buffering=0) as terminal:
            text = b""
            while not text.endswith(b"\n"):
                text += terminal.read(100)
        assert text == b"open\r\n"
        os.close(ours)
        _, errors = host.communicate("go on\n")
    assert (host.returncode, errors) == (0, "")


def test_other_errors_of_the_observer_are_raised() -> None:
    class Broken(JobObserver):
        def note(self, text: str) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        TerminalObserver(Broken()).note("hello")
