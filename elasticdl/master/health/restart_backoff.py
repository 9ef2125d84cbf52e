"""Backoff between the nodes that take one place of a job, one after the other.

A node that is killed from outside is replaced without limit, and the first time without delay. But a machine that
rejects every pod, or a program that something kills as soon as it starts, must not create nodes as fast as the cluster
can. So when several in a row are killed within seconds of their start, and have made no progress, the delay before the
next one doubles. One that makes progress, or just lives, resets it. A program that fails by itself is restarted with
backoff from the first failure on; how often, the roster decides.

Not journaled: a master that recovers restarts nodes at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.backoff import Backoff
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

_BACKOFF = Backoff(initial_seconds=1.0, max_seconds=30.0)
# A node that has lived for longer was not killed by what meets every node at its start.
_EARLY_EXIT_SECONDS = 10.0

Place = tuple[str, int]
"""Role and slot, which a node has in common with the nodes that it replaces."""


@dataclass(frozen=True, kw_only=True)
class RestartDelay:
    seconds: float
    # After so many early exits, or failures, in a row.
    exits: int


class RestartBackoff:
    """`after_failures`: nodes run job commands, whose own failures count too."""

    def __init__(self, *, after_failures: bool, backoff: Backoff = _BACKOFF) -> None:
        self._after_failures = after_failures
        self._backoff = backoff
        self._started_at: dict[str, float] = {}
        self._due_at: dict[str, float] = {}
        self._early_exits: dict[Place, int] = {}

    def node_started(self, name: str, now: float) -> None:
        """Notes that a node was requested from the platform, or that its process has started."""
        self._started_at[name] = now
        self._due_at.pop(name, None)

    def node_observed(
        self, status: NodeStatus, now: float, *, place: Place, is_draining: bool, has_progressed: bool
    ) -> None:
        """Takes a new status of a node."""
        is_leaving = status.phase is NodePhase.LEAVING
        if not is_leaving and status.phase not in (NodePhase.SUCCEEDED, NodePhase.FAILED):
            return
        started_at = self._started_at.pop(status.name, None)
        if started_at is None or is_draining or not (is_leaving or status.reason is EndReason.KILLED):
            return
        if has_progressed or now - started_at > _EARLY_EXIT_SECONDS:
            self._early_exits.pop(place, None)
        else:
            self._early_exits[place] = self._early_exits.get(place, 0) + 1

    def delay(self, name: str, now: float, *, place: Place, failures: int) -> RestartDelay | None:
        """Returns how long a node must still wait for its start, or None if it may start. `failures`: of those that it
        replaces.
        """
        # The first replacement does not wait.
        exits = self._early_exits.get(place, 0)
        seconds = self._backoff.delay(exits - 1)
        if self._after_failures:
            seconds = max(seconds, self._backoff.delay(failures))
            exits = max(exits, failures)
        if not seconds:
            return None
        due_at = self._due_at.setdefault(name, now + seconds)
        return RestartDelay(seconds=due_at - now, exits=exits) if due_at > now else None

    def is_waiting(self, name: str) -> bool:
        """The start of this node is delayed."""
        return name in self._due_at
