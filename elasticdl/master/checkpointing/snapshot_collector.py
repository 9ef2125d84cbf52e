"""Releases snapshots of the model that parameter servers keep without need.

A snapshot is released as soon as it is written and evaluated (`checkpointer.py`). If a master is killed just before
that, or its call does not arrive, the snapshot stays, and with it the memory of everything that has changed since. So
servers are polled for their snapshots now and then, first when a master starts, and those that the state does not need
are released.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle
from elasticdl.master.checkpointing.checkpointer import Placement
from elasticdl.master.lifecycle.evaluation import Evaluation
from elasticdl.ps.checkpoint.checkpoint_folders import snapshot_barrier
from elasticdl.ps.client.coordinator import Coordinator

log = logging.getLogger("elasticdl.master")

# A snapshot costs memory slowly, by what is trained.
_LOOK_SECONDS = 15.0


class SnapshottedState(Protocol):
    @property
    def cycle(self) -> CheckpointCycle: ...

    @property
    def evaluation(self) -> Evaluation | None: ...

    @property
    def placing(self) -> Placement: ...

    @property
    def is_recovering(self) -> bool: ...


class SnapshottedJob(Protocol):
    """The part of the master that the snapshot collector uses."""

    @property
    def state(self) -> SnapshottedState: ...


def is_left_over(state: SnapshottedState, name: str) -> bool:
    """Whether this is the snapshot of a passed barrier that is neither written nor evaluated any more."""
    number = snapshot_barrier(name)
    # Before a barrier is passed its snapshot may exist on some servers already.
    if number is None or number > state.cycle.passed:
        return False
    pending, evaluation = state.cycle.pending, state.evaluation
    is_saved = pending is not None and pending.barrier == number
    is_evaluated = evaluation is not None and evaluation.number == number
    return not is_saved and not is_evaluated


class SnapshotCollector:
    """The clock and the calls."""

    def __init__(self, job: SnapshottedJob, servers: Coordinator) -> None:
        self._job = job
        self._servers = servers

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        state = self._job.state
        addresses = state.placing.addresses()
        if state.is_recovering or not addresses:
            return
        # The snapshots of a server that died are gone, too; one that does not answer is asked again.
        statuses = await self._servers.status_all(addresses)
        names = {name for status in statuses.values() for name in status.frozen if is_left_over(state, name)}
        for name in sorted(names):
            log.info("Releasing the unused snapshot %s", name)
            await self._servers.release_all(addresses, name)
