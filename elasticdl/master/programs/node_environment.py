"""The inputs of nodes' commands besides the job: the machine that they run on, or the image."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The environment of commands; by default that of processes of this machine."""

    python: str = sys.executable
    # The variable PATH for programs of the user's own, if it is not theirs to decide.
    search_path: dict[str, str] = field(default_factory=lambda: {"PATH": search_path()})
    # The cores that all workers have to share; None: each has its own.
    shared_cores: int | None = field(default_factory=lambda: _cores())


# In pods: all is as the image has it.
IN_PODS = Surroundings(python="python3", search_path={}, shared_cores=None)


def search_path() -> str:
    """Returns the search path of programs: a "python" in a command means the interpreter that runs us."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def _cores() -> int:
    """Returns the number of cores that this process may use, if the system knows it; else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
