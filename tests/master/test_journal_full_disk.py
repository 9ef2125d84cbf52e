"""A disk that is really full: the error names the path, nothing is half written, and with room it goes on.

On machines that allow it the disk is a tiny one of its own (tmpfs in a mount namespace); elsewhere the kernel
limits the size of a file, which makes writes fall short and fail in the same way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.master.journal import Journal

# Appends until the disk is full, makes room, appends again, and prints what happened.
SCRIPT = """
import json, os, resource, shutil, sys
from elasticdl.errors import UserError
from elasticdl.master.journal import Journal

# A limit on the size of files would truncate what Python caches of a module, for good.
sys.dont_write_bytecode = True
folder, how, step = sys.argv[1], sys.argv[2], sys.argv[3]
if how == "disk":
    os.makedirs(folder)
    status = os.system(f"mount -t tmpfs -o size=64k tmpfs {folder}")
    assert status == 0, status
    filler = os.path.join(folder, "filler")
    with open(filler, "wb") as file:
        file.write(b"x" * 16384)
    make_room = lambda: os.unlink(filler)
else:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    make_room = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

journal = Journal(folder + "/journal", fsync_seconds=None)
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (32768, hard))
written, errors, snapshot = [], [], None
try:
    for n in range(10**6):
        records = [{"n": n, "padding": "x" * 97}] if step == "append" else [{"n": [n, i]} for i in range(100)]
        journal.append(records[0]) if step == "append" else journal.append_many(records)
        written += records
except UserError as error:
    errors.append(str(error))
try:
    journal.compact({"padding": "y" * 40000})
except UserError as error:
    errors.append(str(error))
left = sorted(os.listdir(folder + "/journal"))
sound = list(journal.read()[1]) == written and os.path.getsize(journal._path) == journal.size
make_room()
journal.append({"after": True})
written.append({"after": True})
journal.close()
journal = Journal(folder + "/journal")
print(json.dumps({
    "errors": errors, "written": len(written), "sound": sound, "dropped": journal.dropped_bytes,
    "same": list(journal.read()[1]) == written, "left": left,
}))
"""


def command_for_a_disk() -> list[str] | None:
    """How to run something with a mount namespace of its own, if this machine allows it."""
    for options in (["--mount"], ["--mount", "--map-root-user"]):
        command = ["unshare", *options]
        try:
            probe = subprocess.run(
                [*command, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"],
                capture_output=True,
                timeout=60,
                check=False,
            )
        except FileNotFoundError:
            return None
        if probe.returncode == 0:
            return command
    return None


@pytest.fixture(scope="module")
def means() -> tuple[str, list[str]]:
    command = command_for_a_disk()
    return ("limit", []) if command is None else ("disk", command)


@pytest.mark.parametrize("step", ["append", "append_many"])
@pytest.mark.parametrize("kind", ["limit", "best"])
def test_a_full_disk(tmp_path: Path, means: tuple[str, list[str]], kind: str, step: str) -> None:
    how, command = ("limit", []) if kind == "limit" else means
    folder = tmp_path / "disk"
    result = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, str(folder), how, step],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert len(found["errors"]) == 2
    for error in found["errors"]:
        assert f"The journal in {folder}/journal cannot be written: the disk is full." in error
        assert "Make room" in error
    assert found["written"] > 10
    assert found["sound"]
    assert found["dropped"] == 0
    assert found["same"]
    # A compaction that did not fit has left nothing behind.
    assert found["left"] == ["journal-000001.log", "journal.end", "journal.lock"]


def test_a_journal_that_cannot_be_repaired_is_not_written_any_more(tmp_path: Path) -> None:
    # A file that always says it is full, and cannot be cut either.
    journal = Journal(tmp_path)
    journal.append({"n": 1})
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._file)
    os.close(full)
    with pytest.raises(UserError, match="the disk is full"):
        journal.append({"n": 2})
    with pytest.raises(UserError, match="a torn line could not be removed"):
        journal.append({"n": 3})
    journal.close()
    with Journal(tmp_path) as journal:
        assert list(journal.read()[1]) == [{"n": 1}]
