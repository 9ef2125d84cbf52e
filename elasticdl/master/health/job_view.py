"""The state of the job that the failure detector uses besides the events of its nodes: a value, made for each check.

With it the detector depends on neither the job's state machine nor its journal, and a test can describe any job in a
few lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node that has not ended, as far as the job's state says."""

    name: str
    role: str
    # Its process runs; else it is pending.
    is_running: bool = True
    has_joined: bool = True
    # It gets no more work: draining, or about to be terminated by the platform.
    is_leaving: bool = False
    # The platform has reported its end; what it is credited with is being determined.
    has_ended: bool = False
    shards: int = 0
    # It has reached a barrier and waits for the others.
    is_at_barrier: bool = False
    # It is blocked in a call for a shard.
    waits_for_shard: bool = False
    # It has no shard, and there is none for it now.
    is_without_work: bool = False


@dataclass(frozen=True, kw_only=True)
class JobView:
    nodes: tuple[NodeView, ...] = ()
    # Workers that have reported an error of their own and have not been seen to exit.
    failed: frozenset[str] = frozenset()
    # A program has announced a data set, so its workers are expected to ask for shards.
    has_announced_data: bool = False
