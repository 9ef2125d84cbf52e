"""When things happened in the processes that are measured, left behind in files that survive a kill.

A process that is to leave stamps finds the folder in ELASTICDL_BENCHMARK_STAMPS and writes to a file named
after its node there. All times are of the machine's monotonic clock, which is the same for every process.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "ELASTICDL_BENCHMARK_STAMPS"
PLAIN = "plain"

BEGIN, END, IMPORT = "begin", "end", "import"


class _File:
    """Opened when first written to: a definition is also imported by those who do not train."""

    def __init__(self) -> None:
        self._file = -1

    def write(self, event: str, *values: float) -> None:
        if self._file < 0:
            node = os.environ.get("ELASTICDL_NODE", PLAIN)
            path = os.path.join(os.environ[FOLDER], node)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, f"{event} {' '.join(map(repr, values))}\n".encode())


_file = _File()


@contextlib.contextmanager
def framework_import() -> Iterator[None]:
    """Around the import of a framework, or of a part of it: they add up."""
    started = time.monotonic()
    try:
        yield
    finally:
        _file.write(IMPORT, time.monotonic() - started)


class BatchStamps:
    """A callback for Keras and for PyTorch alike."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        _file.write(BEGIN, time.monotonic())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        _file.write(END, time.monotonic(), time.process_time())


@dataclass(kw_only=True)
class Stamps:
    """What one process has left."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    # Seconds of processor time that the process had used at each end, in all its threads.
    worked: list[float] = field(default_factory=list)
    import_seconds: float = 0.0


def read(folder: Path) -> dict[str, Stamps]:
    """The stamps by node."""
    found: dict[str, Stamps] = {}
    for path in folder.iterdir():
        stamps = found[path.name] = Stamps()
        for line in path.read_text().splitlines(keepends=True):
            # The last line may be half written.
            if line.endswith("\n"):
                event, value, *more = line.split()
                if event == IMPORT:
                    stamps.import_seconds += float(value)
                elif event == BEGIN:
                    stamps.begins.append(float(value))
                else:
                    stamps.ends.append(float(value))
                    stamps.worked.append(float(more[0]))
    return found
