"""The decisions of the failure detector: the node that has failed, how, since when, and the reaction to it.

Decisions are plain values. The detector (`failure_detector.py`) makes them; the node supervisor
(`nodes/supervisor.py`) is the one place that acts on them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FailureKind(enum.Enum):
    STALLED = "stalled"  # holds shards, reports no progress
    UNRESPONSIVE = "unresponsive"  # a worker without heartbeats
    FAILED_BUT_RUNNING = "failed but running"  # has reported its own error and does not exit
    NEVER_REPORTED = "never reported"  # a program that has not asked for data since its start
    NEVER_JOINED = "never joined"  # a node of ours that has not joined the master since its start
    SERVER_UNRESPONSIVE = "server unresponsive"  # a parameter server that does not answer probes
    STRAGGLER = "straggler"  # the other members of an all-reduce step wait for it


class Action(enum.Enum):
    KILL = "kill"  # a replacement starts; it costs the node no failure
    FAIL = "fail"  # kill, and count a failure against --relaunch_on_worker_failure
    REQUEUE_SHARDS = "requeue shards"  # the node runs on, its shards are leased to others
    REPORT = "report"  # only tell people whom the job waits for


@dataclass(frozen=True, kw_only=True)
class Decision:
    node: str
    kind: FailureKind
    # The node's last sign of life, and when waiting for the next one ends. Both on the clock of the events;
    # the deadline is infinite where the user has switched the timeout off.
    since: float
    deadline: float
    action: Action

    def elapsed_seconds(self, now: float) -> float:
        return now - self.since

    @property
    def timeout_seconds(self) -> float:
        return self.deadline - self.since
