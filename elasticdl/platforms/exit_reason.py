"""Classifies the end of a process by its wait status and the kernel's count of out-of-memory kills.

A signal means that another process killed this one, except for the few signals a program gets for its own faults (a
segmentation fault, a failed assertion in native code): these count as its own error, because a restart cannot fix
them. Shells report the signal that killed their last command as the exit code 128 +
signal; the two signals with which platforms terminate nodes are read that way.

A wait status does not show that the kernel ran out of memory: the process got a SIGKILL like any other.
So the kernel's own count of such kills is watched, and a SIGKILL that this process did not send is attributed to
memory if the count has just risen. The kernel counts before it kills.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY, EndReason

_OWN_FAULTS = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
_PASSED_ON_BY_SHELLS = frozenset({signal.SIGKILL, signal.SIGTERM})


@dataclass(frozen=True, kw_only=True)
class Ending:
    reason: EndReason
    exit_code: int  # of a process ended by a signal: 128 + signal, as shells and Kubernetes tell it
    message: str


@dataclass(kw_only=True)
class MemoryKills:
    """The kernel's out-of-memory kills, each to be claimed once by a process that died of it.

    The first readable file counts, the narrowest first: the count of the own control
    group covers kills for any reason, its own limit's and the whole machine's. An unclaimed kill
    (of a process that is not a node) expires after a while, so that it does not explain an unrelated SIGKILL
    later; until then the victim may still be giving its memory back.
    """

    files: tuple[Path, ...] = field(default_factory=lambda: tuple(_count_files()))
    remembered_seconds: float = 10.0

    def __post_init__(self) -> None:
        self._count = self._read()
        self._unclaimed: deque[float] = deque()

    def observe(self, now: float) -> None:
        """To be called now and then, so that a rise is seen near the time it happened."""
        count = self._read()
        self._unclaimed.extend([now] * (count - self._count))
        self._count = count
        while self._unclaimed and self._unclaimed[0] < now - self.remembered_seconds:
            self._unclaimed.popleft()

    def claim(self, now: float) -> bool:
        self.observe(now)
        if not self._unclaimed:
            return False
        self._unclaimed.popleft()
        return True

    def _read(self) -> int:
        for file in self.files:
            try:
                lines = file.read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                name, _, value = line.partition(" ")
                if name == "oom_kill" and value.strip().isdigit():
                    return int(value)
        return 0


def judge(*, exit_code: int, stopped: bool, memory_kills: MemoryKills, now: float) -> Ending:
    """`exit_code` as the `subprocess` module tells it: the negative number of the signal if there was one."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    from_shell = exit_code > 128 and number in _PASSED_ON_BY_SHELLS
    if exit_code < 0 or from_shell:
        shown, message = 128 + number, f"ended by {signal_name(number)}"
    else:
        shown, message = exit_code, f"exit code {exit_code}"

    if stopped:
        reason = EndReason.STOPPED
    elif exit_code == 0:
        reason, message = EndReason.COMPLETED, ""
    elif exit_code == EXIT_OUT_OF_MEMORY:
        reason, message = EndReason.OUT_OF_MEMORY, "an allocation of memory failed"
    elif exit_code > 0 and not from_shell:
        reason = EndReason.ERROR
    elif number in _OWN_FAULTS:
        reason, message = EndReason.ERROR, f"crashed with {signal_name(number)}"
    elif number == signal.SIGKILL and memory_kills.claim(now):
        reason, message = EndReason.OUT_OF_MEMORY, "killed by the kernel because memory ran out"
    else:
        reason = EndReason.KILLED
    return Ending(reason=reason, exit_code=shown, message=message)


def own_fault(number: int) -> bool:
    """A signal that a program gets for its own faults."""
    return number in _OWN_FAULTS


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _count_files() -> Iterable[Path]:
    """Returns the files of the kernel's counters for this process: its control group, of version 2 or 1; the
    machine.
    """
    root = Path("/sys/fs/cgroup")
    try:
        memberships = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in memberships:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield root / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield root / "memory" / group.lstrip("/") / "memory.oom_control"
            # Inside a container the path may be the one outside, while the mount shows the container's own.
            yield root / "memory" / "memory.oom_control"
    yield Path("/proc/vmstat")
