"""Heartbeats of nodes that are processes: which of them are unresponsive, though they have not ended.

A cluster's kubelet finds a container that hangs by a probe; `elasticdl paddle run` finds a node that is frozen by two
signs, neither of which depends on what the training prints or how long a batch takes. A thread of the node, which does
nothing else, updates a file every second. And none of the node's processes, its trainer and servers among them, is
stopped (state T, as after SIGSTOP). A node is unresponsive when either sign has been bad for the timeout.

Failure modes
    The node has not updated its file yet: it is starting, which may take long on a busy machine. Only the state of its
    processes counts.
    The run itself was suspended: it has observed nothing meanwhile, and all timers begin again.
    No /proc (macOS): only the file counts, so a trainer that is stopped alone is not found.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.platforms.local.process_tree import ProcessState

BEAT_SECONDS = 1.0
_STOPPED = "T"
# A longer gap between two checks means that the run itself was suspended: a part of the timeout, and at least so long,
# as a busy machine delays checks too.
_GAP, _LEAST_GAP_SECONDS = 0.5, 2.0


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One look at a node."""

    # Changes with every update of the file; None before the first.
    beat: int | None
    # A process of the node that is stopped, if there is one.
    stopped: int | None = None


@dataclass(frozen=True, kw_only=True)
class Unresponsive:
    """The decision that a node is to be killed."""

    number: int
    seconds: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class _Timer:
    beat: int | None
    since: float


@dataclass(kw_only=True)
class HeartbeatMonitor:
    """Decides which nodes are unresponsive; a plain state machine. `timeout_seconds`: 0 for never."""

    timeout_seconds: float
    _beats: dict[int, _Timer] = field(default_factory=dict)
    _stopped_since: dict[int, float] = field(default_factory=dict)
    _checked_at: float | None = None

    def forget(self, number: int) -> None:
        """The node has ended."""
        self._beats.pop(number, None)
        self._stopped_since.pop(number, None)

    def check(self, nodes: Mapping[int, Observation], now: float) -> list[Unresponsive]:
        """Takes one look at all running nodes, by number."""
        if not self.timeout_seconds:
            return []
        gap = max(_GAP * self.timeout_seconds, _LEAST_GAP_SECONDS)
        if self._checked_at is not None and now - self._checked_at > gap:
            self._beats.clear()
            self._stopped_since.clear()
        self._checked_at = now
        found = []
        for number, seen in nodes.items():
            self._update(number, seen, now)
            if decision := self._decide(number, seen, now):
                found.append(decision)
        return found

    def _update(self, number: int, seen: Observation, now: float) -> None:
        timer = self._beats.get(number)
        if timer is None or timer.beat != seen.beat:
            self._beats[number] = _Timer(beat=seen.beat, since=now)
        if seen.stopped is None:
            self._stopped_since.pop(number, None)
        else:
            self._stopped_since.setdefault(number, now)

    def _decide(self, number: int, seen: Observation, now: float) -> Unresponsive | None:
        since = self._stopped_since.get(number, now)
        if seen.beat is not None:
            since = min(since, self._beats[number].since)
        if now - since < self.timeout_seconds:
            return None
        reason = "no heartbeat" if seen.stopped is None else f"its process {seen.stopped} is stopped"
        return Unresponsive(number=number, seconds=now - since, reason=reason)


def stopped_descendant(table: Mapping[int, ProcessState], root: int) -> int | None:
    """Returns a process that is stopped, of the process `root` and all that descend from it."""
    for pid, process in table.items():
        if process.state != _STOPPED:
            continue
        ancestor: int = pid
        while ancestor != root and ancestor in table:
            ancestor = table[ancestor].parent
        if ancestor == root:
            return pid
    return None


def beat_file(members_file: Path, uid: str) -> Path:
    """The file that a node updates, beside the one that lists the members."""
    return members_file.with_name(f"{uid}.beat")


def read_beat(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def start_beating(file: Path, *, interval_seconds: float = BEAT_SECONDS) -> threading.Event:
    """Updates the file in a thread of its own. Returns an event that ends it."""
    ended = threading.Event()

    def beat() -> None:
        while True:
            file.touch()
            if ended.wait(interval_seconds):
                return

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()
    return ended
