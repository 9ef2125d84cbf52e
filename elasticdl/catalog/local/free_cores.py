"""The size of a job on this machine that has a range of sizes: as many workers as there are free cores.

Decided once, when the job starts; `elasticdl jobs scale` changes it later, within the same range.
"""

from __future__ import annotations

import dataclasses
import os

from elasticdl.jobs.spec import JobSpec


def free_cores() -> int:
    """Returns the cores that this process may use, less those that were busy in the last minute."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Windows does not tell its load.
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(cores - round(busy), 0)


def with_free_cores(spec: JobSpec, cores: int) -> JobSpec:
    """Returns the job with a worker for each of so many cores, within its range. A size that a user chose stays, and
    that of a job on other hosts.
    """
    nodes = spec.nodes
    low, high = nodes.range_of("worker")
    fewest = max(low, 1)
    # `--num_workers` has this default; a job without it leaves the size open.
    if high is None or nodes.num_workers != fewest or nodes.hosts:
        return spec
    workers = min(max(cores, fewest), high)
    return dataclasses.replace(spec, nodes=dataclasses.replace(nodes, num_workers=workers))
