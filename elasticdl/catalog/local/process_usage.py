"""CPU, memory and GPU use of the nodes of a local job, as seen from outside.

A node is a process with all its descendants: a job command may be a shell that starts others. Processor time is
counted by the kernel, with that of children that have ended, so the use is the difference between two reads. Memory
is the resident set, in which pages that processes share count for each.

Failure modes
    The job has ended, or no `/proc` (macOS): nothing is known, and no error. A process may end while it is read: it
    counts as gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.catalog.job import NodeUsage
from elasticdl.catalog.local.gpu_usage import GpuProcess, gpu_processes
from elasticdl.catalog.local.process_ids import node_process_ids
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder

_PROC = Path("/proc")
# A display does not wait longer for the keeper of the job.
_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class _Process:
    parent: int
    session: int
    cpu_seconds: float
    memory_bytes: int


class ProcessUsage:
    """The resources that the nodes of one job use. Keeps the last readings, to compute rates."""

    def __init__(self, folder: JobFolder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        # Processor time of each node by its process id, and when that was.
        self._before: dict[int, float] = {}
        self._read_at = 0.0

    def read(self) -> Mapping[str, NodeUsage]:
        """Returns the use of each running node. CPU use is that since the last call, and None in the first."""
        if not _PROC.is_dir() or not self._folder.is_running():
            return {}
        try:
            nodes = node_process_ids(self._folder, timeout_seconds=_TIMEOUT_SECONDS)
        except UserError:
            return {}
        now, processes = self._clock(), _processes()
        owners = _owners(processes, set(nodes.values()))
        gpus = gpu_processes()
        elapsed, cpu_seconds = now - self._read_at, dict.fromkeys(nodes.values(), 0.0)
        memory = dict.fromkeys(nodes.values(), 0)
        devices: dict[int, list[GpuProcess]] = {pid: [] for pid in nodes.values()}
        for pid, owner in owners.items():
            cpu_seconds[owner] += processes[pid].cpu_seconds
            memory[owner] += processes[pid].memory_bytes
            devices[owner] += gpus.get(pid, ())
        usage = {
            name: NodeUsage(
                cpu_cores=self._cores(pid, cpu_seconds[pid], elapsed),
                memory_bytes=memory[pid],
                gpu_memory_bytes=sum(one.memory_bytes for one in devices[pid]) if devices[pid] else None,
                gpu_utilization=max((one.utilization for one in devices[pid]), default=None),
            )
            for name, pid in nodes.items()
        }
        self._before, self._read_at = cpu_seconds, now
        return usage

    def _cores(self, pid: int, cpu_seconds: float, elapsed: float) -> float | None:
        before = self._before.get(pid)
        if before is None or elapsed <= 0:
            return None
        # A process that was reparented out of the node takes its time with it.
        return max(cpu_seconds - before, 0.0) / elapsed


def _owners(processes: Mapping[int, _Process], nodes: set[int]) -> dict[int, int]:
    """Returns the node of each process that belongs to one: by its session, or by its ancestors."""
    owners: dict[int, int] = {}
    for pid in processes:
        current, seen = pid, set[int]()
        while current in processes and current not in seen:
            seen.add(current)
            if current in nodes or processes[current].session in nodes:
                owners[pid] = current if current in nodes else processes[current].session
                break
            current = processes[current].parent
    return owners


def _processes() -> dict[int, _Process]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for name in os.listdir(_PROC):
        if not name.isdigit():
            continue
        try:
            # The second field is the program's name in parentheses and may hold anything, parentheses too.
            fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # proc(5): state is field 3 and the first here; 4 parent, 6 session, 14-17 times, 24 resident pages.
        found[int(name)] = _Process(
            parent=int(fields[1]),
            session=int(fields[3]),
            cpu_seconds=sum(map(int, fields[11:15])) / ticks,
            memory_bytes=int(fields[21]) * page,
        )
    return found
