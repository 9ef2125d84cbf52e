"""A journal whose process is really killed, at every step of a compaction and in the middle of appending.

A child kills itself with SIGKILL before or after the n-th call that it makes to the operating system on
files; which calls those are does not matter here, n grows until a child gets through alive.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.master.journal import Journal

COMPACTION = """
import builtins, os, signal, sys
from elasticdl.master.journal import Journal

base, when = sys.argv[1], sys.argv[2]
calls = 0

def deadly_version(real, deadly):
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == deadly and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if calls == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

def compact(folder, deadly):
    journal = Journal(folder)
    journal.append_many([{"n": n} for n in range(5)])
    for name in ("open", "write", "fsync", "rename", "unlink", "close", "fstat", "replace"):
        setattr(os, name, deadly_version(getattr(os, name), deadly))
    builtins.open = deadly_version(builtins.open, deadly)
    journal.compact({"sum": 10})
    journal.append({"n": 5})
    journal.compact({"sum": 15})
    journal.append({"n": 6})

for deadly in range(1, 100):
    child = os.fork()
    if not child:
        compact(f"{base}/{deadly}", deadly)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code)
    if code == 0:
        break
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def total(folder: Path) -> int:
    """The sum of all numbers appended, by way of snapshots or not."""
    with Journal(folder, fsync_seconds=None) as journal:
        snapshot, records = journal.read()
        value = (snapshot or {"sum": 0})["sum"] + sum(record["n"] for record in records)
        journal.append({"n": 0})
    assert len(list(folder.glob("journal-*"))) == 1
    return int(value)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_step_of_a_compaction(tmp_path: Path, when: str) -> None:
    result = run(COMPACTION, str(tmp_path), when)
    codes = [int(code) for code in result.stdout.split()]
    # There were steps to be killed at, and at last none was left.
    assert len(codes) > 10, result.stderr
    assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0], result.stderr
    # Nothing was ever lost.
    totals = [total(tmp_path / str(deadly)) for deadly in range(1, len(codes) + 1)]
    assert set(totals) == {10, 15, 21}
    assert totals == sorted(totals)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99, 1.0])
def test_a_new_file_that_was_half_written_does_not_count(tmp_path: Path, part: float) -> None:
    with Journal(tmp_path) as journal:
        journal.append_many({"n": n} for n in range(5))
    with Journal(tmp_path / "other") as journal:
        journal.compact({"sum": 99})
    data = (tmp_path / "other" / "journal-000002.log").read_bytes()
    (tmp_path / "journal-000002.log.partial").write_bytes(data[: int(part * len(data))])
    assert total(tmp_path) == 10


APPENDING = """
import sys
from elasticdl.master.journal import Journal

with Journal(sys.argv[1]) as journal:
    for n in range(10**9):
        if n % 3:
            journal.append({"n": n, "padding": "x" * (n % 200)})
        else:
            journal.append_many([{"n": n, "padding": "y" * (n % 5000)}])
        if n % 500 == 499:
            journal.compact({"next": n + 1})
        print(n, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [0, 1, 498, 499, 500, 1700])
def test_killed_while_appending(tmp_path: Path, acknowledged: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", APPENDING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == acknowledged:
                child.kill()
                break
        # What it could still say before it died.
        last = int([str(acknowledged), *child.stdout.read().split("\n")[:-1]][-1])
    with Journal(tmp_path) as journal:
        snapshot, records = journal.read()
        found = [record["n"] for record in records]
        first = (snapshot or {"next": 0})["next"]
        # Everything it said is there; one more may be, that it had no time to say.
        assert found in ([*range(first, last + 1)], [*range(first, last + 2)])


def test_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from elasticdl.master.journal import Journal
journal = Journal(sys.argv[1])
journal.append({"n": 1})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(script, str(tmp_path)).returncode == -signal.SIGKILL
    assert total(tmp_path) == 1
