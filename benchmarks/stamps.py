"""Time stamps of events in the measured processes, in files that survive a kill.

A process that writes stamps finds the folder in ELASTICDL_BENCHMARK_STAMPS and writes to a file there that is named
after its node. In a pod, whose files are removed with it, it prints them ("-"). All times are of the machine's
monotonic clock, which is the same for every process, also in containers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "ELASTICDL_BENCHMARK_STAMPS"
# In place of a folder: stamps are printed.
PRINTED = "-"
PLAIN = "plain"

START, IMPORTING, IMPORT, BEGIN, END = "start", "importing", "import", "begin", "end"
_MARK = "stamp: "


class _File:
    """Opened at the first write: a definition is also imported by processes that do not train."""

    def __init__(self) -> None:
        self._file = -1
        self._mark = ""

    def write(self, event: str, seconds: float, worked: float) -> None:
        if self._file < 0:
            self._open()
            self._line(START, process_started(), 0.0)
        self._line(event, seconds, worked)

    def _open(self) -> None:
        if os.environ[FOLDER] == PRINTED:
            self._file, self._mark = sys.stdout.fileno(), _MARK
            return
        path = os.path.join(os.environ[FOLDER], os.environ.get("ELASTICDL_NODE", PLAIN))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _line(self, event: str, seconds: float, worked: float) -> None:
        os.write(self._file, f"{self._mark}{event} {seconds!r} {worked!r}\n".encode())


_file = _File()


def process_started(pid: str = "self") -> float:
    """Returns the start of a process by time.monotonic(), to a hundredth of a second."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


@contextlib.contextmanager
def framework_import() -> Iterator[None]:
    """Times the import of a framework, or of a part of it, and its lazy initialization; the times add up."""
    started, worked = time.monotonic(), time.process_time()
    _file.write(IMPORTING, started, worked)
    try:
        yield
    finally:
        _file.write(IMPORT, time.monotonic() - started, time.process_time() - worked)


class BatchStamps:
    """A callback for Keras and for PyTorch alike."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        _file.write(BEGIN, time.monotonic(), time.process_time())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        _file.write(END, time.monotonic(), time.process_time())


@dataclass(frozen=True, kw_only=True)
class Stamp:
    seconds: float
    # The processor time of the process so far, in all its threads: on a busy machine it is more reliable than
    # the clock.
    worked: float


@dataclass(kw_only=True)
class Stamps:
    """The stamps of one process."""

    starts: list[Stamp] = field(default_factory=list)
    importing: list[Stamp] = field(default_factory=list)
    begins: list[Stamp] = field(default_factory=list)
    ends: list[Stamp] = field(default_factory=list)
    # Durations, and how many of them are before the first batch.
    imports: list[Stamp] = field(default_factory=list)
    early_imports: int = 0

    @property
    def import_seconds(self) -> float:
        """Seconds of imports before the first batch."""
        return sum(stamp.seconds for stamp in self.imports[: self.early_imports])

    @property
    def work_for_first_batch(self) -> float:
        """Processor time from the start of the process to the end of its first batch, without framework imports."""
        return self.ends[0].worked - sum(stamp.worked for stamp in self.imports)


def batches_done(folder: Path, node: str) -> int:
    """Returns how many batches the node has finished; cheap, because polling uses the machine that is measured."""
    path = folder / node
    return path.read_bytes().count(f"{END} ".encode()) if path.exists() else 0


def read(folder: Path) -> dict[str, Stamps]:
    """Returns the stamps by node."""
    return {path.name: _read(path.read_text()) for path in folder.iterdir()}


def read_printed(log: str) -> Stamps:
    """Returns the stamps in the output of a process."""
    lines = (line.removeprefix(_MARK) for line in log.splitlines(keepends=True) if line.startswith(_MARK))
    return _read("".join(lines))


def _read(text: str) -> Stamps:
    stamps = Stamps()
    kinds = {
        START: stamps.starts,
        IMPORTING: stamps.importing,
        IMPORT: stamps.imports,
        BEGIN: stamps.begins,
        END: stamps.ends,
    }
    for line in text.splitlines(keepends=True):
        # The last line may be incomplete.
        if line.endswith("\n"):
            event, seconds, worked = line.split()
            kinds[event].append(Stamp(seconds=float(seconds), worked=float(worked)))
            stamps.early_imports += event == IMPORT and not stamps.begins
    return stamps
