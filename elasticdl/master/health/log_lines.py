"""The words for the failure detector's decisions: the log lines of the master, and since when a node is unresponsive.

Every line begins with what is done, so that `grep Killing` finds every process that the master has killed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping

from elasticdl.master.health.decisions import Action, Decision, FailureKind

log = logging.getLogger("elasticdl.master")

_WAITING_FOR = {
    FailureKind.NEVER_JOINED: ("not joined", "start_timeout_seconds", ""),
    FailureKind.SERVER_UNRESPONSIVE: ("unresponsive", "stall_factor", ""),
    FailureKind.UNRESPONSIVE: ("unresponsive", "stall_factor", "at least "),
}


def describe(decision: Decision, *, now: float, shards: int) -> str:
    """`shards`: how many the node holds."""
    node, seconds = decision.node, decision.elapsed_seconds(now)
    if decision.action is Action.REQUEUE_SHARDS:
        return f"Requeueing {_count(shards)} of {node}: leased {seconds:.0f} s ago, and it still waits for a shard"
    requeued = f"; requeueing {_count(shards)}" if shards else ""
    return f"Killing {node}: {reason(decision, now=now)}{requeued}"


def reason(decision: Decision, *, now: float) -> str:
    """Why a node is killed."""
    seconds = decision.elapsed_seconds(now)
    return {
        FailureKind.STALLED: f"stalled for {seconds:.0f} s",
        FailureKind.UNRESPONSIVE: f"unresponsive for {seconds:.0f} s",
        FailureKind.FAILED_BUT_RUNNING: f"still running {seconds:.0f} s after its failure",
        FailureKind.NEVER_REPORTED: f"no request for data within {decision.timeout_seconds:.0f} s of its start",
        FailureKind.NEVER_JOINED: f"not joined within {decision.timeout_seconds:.0f} s of its start",
        FailureKind.SERVER_UNRESPONSIVE: f"unresponsive for {seconds:.0f} s",
        FailureKind.STRAGGLER: f"straggler, no progress for {seconds:.0f} s while the other workers wait",
    }[decision.kind]


def _count(shards: int) -> str:
    return "1 shard" if shards == 1 else f"{shards} shards"


class UnresponsiveNodes:
    """Nodes that the job may be waiting for: reported once in the log, and in the status while it lasts."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._since: dict[str, float] = {}

    @property
    def since(self) -> Mapping[str, float]:
        """Returns the last heartbeat of each node, in seconds since 1970."""
        return self._since

    def update(self, decisions: Iterable[Decision], *, now: float) -> None:
        """Takes all reports of one check."""
        before, self._since = self._since, {}
        for decision in decisions:
            name = decision.node
            # The same moment each time, or every status would differ from the last.
            self._since[name] = before.get(name, self._wall_clock() - decision.elapsed_seconds(now))
            if name not in before:
                log.warning("%s", _waiting_for(decision, self._since[name]))


def _waiting_for(decision: Decision, since: float) -> str:
    what, flag, at_least = _WAITING_FOR[decision.kind]
    timeout = decision.timeout_seconds
    limit = f"no timeout: --{flag}=0" if math.isinf(timeout) else f"timeout {at_least}{timeout:g} s"
    moment = time.strftime("%H:%M:%S", time.localtime(since))
    return f"Waiting for {decision.node}: {what} since {moment} ({limit})"
