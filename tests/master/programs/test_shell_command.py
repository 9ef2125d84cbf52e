"""A command that takes a shell ends as its programs do, and its programs hear when they are to end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.master.programs.shell_command import command_line

# Says what it hears, and takes a moment to end of which it tells, too. It waits in pieces: a signal that comes just
# before a wait begins is handled when the wait is over.
PROGRAM = """
import os, signal, sys, time
def stop(*_):
    os.write(1, b"stopped\\n")
    time.sleep(0.2)
    os.write(1, b"saved\\n")
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)
"""
# Its helper would tell, too.
PARENT = f"""
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-I", "-S", "-c", {PROGRAM!r}.replace("stopped", "helper")], stdout=2)
{PROGRAM}
"""

Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command, in which PROGRAM is one that has been started when it says so."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "parent.py").write_text(PARENT)

    def run(command: str) -> subprocess.Popen[str]:
        python = f"{shlex.quote(sys.executable)} -I -S"
        words = command.replace("PROGRAM", f"{python} program.py").replace("PARENT", f"{python} parent.py")
        process = subprocess.Popen(
            command_line(words),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        # As a platform ends a node: with all that it has left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ended(process: subprocess.Popen[str]) -> tuple[list[str], int]:
    """What it said from then on, and its exit code."""
    said, _ = process.communicate(timeout=60)
    return said.splitlines(), process.returncode


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cd . && PROGRAM", 7),
        ("A=1 PROGRAM", 7),
        ("PROGRAM $HOME", 7),
        ("PROGRAM 2>err", 7),
        ("PROGRAM; true", 7),
        ("PROGRAM || echo and again", 7),
        ("while :; do PROGRAM; done", 7),
        ("PROGRAM & wait", 143),
        ("sleep 1000 & PROGRAM", 7),
        ("PROGRAM | cat", 0),
        ("PROGRAM | tee log", 0),
        ("(cd . && PROGRAM) | cat", 0),
        ("echo once | PROGRAM", 7),
        ("yes | PROGRAM", 7),
        ("while :; do echo more; sleep 0.1; done | PROGRAM", 7),
    ],
)
def test_programs_in_a_shell_hear_that_they_are_to_end(start: Start, command: str, code: int) -> None:
    process = start(command)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (["stopped", "saved"], code)


def test_the_helpers_of_a_program_hear_nothing(start: Start) -> None:
    process = start("cd . && PARENT 2>&1")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    process.send_signal(signal.SIGTERM)
    assert [process.stdout.readline() for _ in range(2)] == ["stopped\n", "saved\n"]
    assert process.wait(60) == 7


def test_signal_is_forwarded_once(start: Start) -> None:
    process = start("cd . && PROGRAM")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
    assert ended(process) == (["stopped", "saved"], 7)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cd . && true", 0),
        ("exit $((1 + 2))", 3),
        ("echo a | false", 1),
        ("cd . && no-such-program 2>err", 127),
        ("sh -c 'kill -KILL $$'", 137),
        ("sh -c 'kill -KILL $$'; exit $?", 137),
        ("sh -c 'kill -TERM $$'", 143),
        ("cd . && sh -c 'kill -SEGV $$'", 139),
        ("A=3; exit $A", 3),
    ],
)
def test_the_exit_code_is_that_of_the_command(start: Start, command: str, code: int) -> None:
    assert ended(start(command))[1] == code


def test_the_command_sees_no_words_but_its_own(start: Start) -> None:
    assert ended(start('echo "$0 $# $*"; cat'))[0] == ["/bin/sh 0 "]
