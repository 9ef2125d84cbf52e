"""The progress of a trainer: the end of every batch and its loss, one line each in a file of its own.

All programs of this benchmark write it in the same way, ours through a callback. The files survive a kill of the
process, and the benchmark reads them without a call to it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "ELASTICDL_BENCHMARK_PROGRESS"


class Progress:
    """Opened at the first write: a definition is also imported by processes that do not train."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._file = -1

    def batch(self, loss: float) -> None:
        if self._file < 0:
            path = os.path.join(
                os.environ[FOLDER], self._name or os.environ.get("ELASTICDL_NODE", "worker-0")
            )
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._file, f"{time.monotonic()!r} {loss:.6g}\n".encode())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The callback of a model definition."""
        self.batch(float((logs or {}).get("loss", "nan")))


@dataclass(frozen=True, kw_only=True)
class Batch:
    seconds: float
    loss: float


def read(path: Path) -> list[Batch]:
    # The last line may be incomplete.
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    pairs = (line.split() for line in lines if line.endswith("\n"))
    return [Batch(seconds=float(seconds), loss=float(loss)) for seconds, loss in pairs]
