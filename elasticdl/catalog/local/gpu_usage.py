"""The GPUs that each process of this machine uses, as `nvidia-smi` reports them.

The program comes with the driver, so it is there wherever such a GPU can be used. In a container without the process
namespace of its machine it names processes that are not known there; they are then left out.
"""

from __future__ import annotations

import contextlib
import csv
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

_PROGRAM = "nvidia-smi"
_TIMEOUT_SECONDS = 2.0
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process on a device. `utilization`: of the device, between 0 and 1."""

    memory_bytes: int
    utilization: float


def gpu_processes() -> Mapping[int, list[GpuProcess]]:
    """Returns the processes by their ids. Empty without such a GPU, or if its driver does not answer."""
    if shutil.which(_PROGRAM) is None:
        return {}
    busy = {}
    for uuid, percent in _query("--query-gpu=uuid,utilization.gpu"):
        # A device that cannot tell says [N/A].
        with contextlib.suppress(ValueError):
            busy[uuid] = float(percent) / 100
    found: dict[int, list[GpuProcess]] = {}
    for pid, uuid, mebibytes in _query("--query-compute-apps=pid,gpu_uuid,used_memory"):
        with contextlib.suppress(ValueError):
            process = GpuProcess(memory_bytes=int(mebibytes) * _MIB, utilization=busy.get(uuid, 0.0))
            found.setdefault(int(pid), []).append(process)
    return found


def _query(question: str) -> list[list[str]]:
    columns = question.count(",") + 1
    try:
        done = subprocess.run(
            [_PROGRAM, question, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    return [row for row in rows if len(row) == columns]
