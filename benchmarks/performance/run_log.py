"""The results of a run as a JSON file, rewritten after every result: an interrupted run loses nothing.

With a folder instead of a file, each run adds a file, named by its time and commit. `newest` takes the last figure of
each case from all of them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT
from benchmarks.report import Result


class RunLog:
    """`path`: a file, a folder for a file of its own, or None: nothing is written."""

    def __init__(self, path: Path | None, *, quick: bool, repeat: int) -> None:
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        commit = _commit()
        if path is not None and (path.is_dir() or not path.suffix):
            path.mkdir(parents=True, exist_ok=True)
            path = path / f"{started.replace(':', '')}-{commit[:12] or 'unknown'}.json"
        self._path = path
        self._document: dict[str, Any] = {
            "started": started,
            "commit": commit,
            "machine": {
                "python": platform.python_version(),
                "system": platform.platform(),
                "processor": _processor(),
                "cores": os.cpu_count(),
                "load": os.getloadavg(),
            },
            "quick": quick,
            "repeat": repeat,
            "is_complete": False,
            "results": [],
        }

    def add(self, result: Result) -> None:
        self._document["results"].append(asdict(result))
        self._write()

    def complete(self) -> None:
        """Marks the run as complete."""
        self._document["is_complete"] = True
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        partial = self._path.with_name(f".{self._path.name}.partial")
        partial.write_text(json.dumps(self._document, indent=1) + "\n")
        os.replace(partial, self._path)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A result, and when and on what it was measured."""

    result: Result
    started: str
    commit: str
    cores: int
    # The load average when the run began: figures of a busy machine are less reliable.
    load: float


def newest(folder: Path) -> dict[tuple[str, str], Measured]:
    """Returns results by benchmark and case, without those of short runs."""
    found: dict[tuple[str, str], Measured] = {}
    documents = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    for document in sorted(documents, key=lambda document: str(document["started"])):
        for fields in () if document["quick"] else document["results"]:
            result = Result(**fields)
            found[result.benchmark, result.case] = Measured(
                result=result,
                started=document["started"],
                commit=document["commit"],
                cores=document["machine"]["cores"],
                load=document["machine"]["load"][0],
            )
    return found


def _commit() -> str:
    """Returns the commit; empty without a repository."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
