"""Maintains the map of buckets while a job runs: polls the servers for progress and load.

The map itself and what follows for it is in the state (`bucket_placement.py`). Here the clock is: servers at work on
moves are asked a few times a second, missing ones are given up after a timeout, and now and then it checks
whether one of them has much more to do than the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.bucket_placement import AdvanceMigration, RebalanceBuckets, ReplanBuckets
from elasticdl.master.commands.executor import CommandExecutor
from elasticdl.master.servers.bucket_placement import BucketPlacement, fewest_servers
from elasticdl.master.servers.server_metrics import ServerFigures
from elasticdl.master.settings import JobSettings
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.memory_limit import room_for_rows

log = logging.getLogger("elasticdl.master")

_ASK_SECONDS = 0.1
# A process is back within a second or two, a pod within some more; copies made meanwhile would have to move again.
_PATIENCE_SECONDS = 10.0
# Where the model is lost, all begin with what they read of the last checkpoint: that takes longer than copying.
_PATIENCE_TO_BEGIN_SECONDS = 60.0
# Work is compared over so long; moving for less would be moving for nothing.
_LOOK_SECONDS = 15.0


class RebalancedState(Protocol):
    @property
    def placing(self) -> BucketPlacement: ...


class RebalancedJob(CommandExecutor, Protocol):
    """The part of the master that the rebalancer uses."""

    @property
    def spec(self) -> JobSpec: ...

    @property
    def plan(self) -> JobSettings: ...

    @property
    def state(self) -> RebalancedState: ...

    @property
    def figures(self) -> ServerFigures: ...


class Rebalancer:
    def __init__(self, job: RebalancedJob, servers: Coordinator, clock: Callable[[], float]) -> None:
        self._job = job
        self._servers = servers
        self._clock = clock
        self._waiting_since: float | None = None
        # Waits until the model can begin, not until it has all its backups.
        self._begins = True
        self._warned_of_room = False
        # How many there are of a bucket, in the mean, or were before the model was lost.
        self._copies = 1.0
        self._looked_at = clock()
        # The work of each bucket up to the last look, and the version of the map that it was counted by; 0: several.
        self._work_before: dict[int, int] = {}
        self._version_before = 0

    async def run(self) -> None:
        while True:
            placing = self._job.state.placing
            await (asyncio.sleep(_ASK_SECONDS) if placing.moving else self._job.changed.wait(1.0))
            await self.look(self._clock())

    async def look(self, now: float) -> None:
        placing = self._job.state.placing
        if placing.handing_over or (placing.moving and not placing.frozen):
            await self._ask()
        # Without buckets there are no backups.
        self._copies = placing.copies or self._copies
        begins = placing.map is None
        if not placing.waits or begins != self._begins:
            self._waiting_since = now if placing.waits else None
            self._warned_of_room = False
        elif self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since >= (_PATIENCE_TO_BEGIN_SECONDS if begins else _PATIENCE_SECONDS):
            self._do_without()
        self._begins = placing.map is None
        if now - self._looked_at >= _LOOK_SECONDS and len(placing.addresses()) > 1:
            self._looked_at = now
            await self._compare()

    def _do_without(self) -> None:
        """New copies of what a missing server held; none if the others would run out of memory by that."""
        begins = self._job.state.placing.map is None
        if self._have_room():
            log.warning(
                "Parameter server missing: the others %s.",
                "begin again without it" if begins else "make new copies of what it held",
            )
            self._job.do(ReplanBuckets())
        elif not self._warned_of_room:
            self._warned_of_room = True
            log.warning(
                "Parameter server missing, and the others have no room for %s (--ps_resource_limit): %s.",
                "the whole model" if begins else "new copies of what it held",
                "it is waited for" if begins else "until it is back there is one copy of that",
            )

    def _have_room(self) -> bool:
        job, placing = self._job, self._job.state.placing
        memory = job.spec.nodes.ps_resource_limit.memory
        if memory is None:
            return True
        room = room_for_rows(int(memory.amount))
        rows, replicas = job.figures.row_bytes, job.plan.replicas
        # Where nothing is placed, these are the rows of before, and in so many copies.
        return len(placing.without_the_missing) >= fewest_servers(
            rows, copies=self._copies, replicas=replicas, room=room
        )

    async def _ask(self) -> None:
        statuses = await self._servers.status_all(self._job.state.placing.addresses())
        now = self._job.state.placing.map
        if now is None:
            return
        # Reports by an older map may have been undone since.
        current = [status for status in statuses.values() if status.ps_map.version == now.version]
        filled = [
            (one.bucket, one.server, one.incarnation)
            for status in current
            for one in status.filled
            if now.migrating.get(one.bucket) == one.server
        ]
        taken = [bucket for status in current for bucket in status.taken if bucket in now.handover]
        if filled or taken:
            self._job.do(AdvanceMigration(version=now.version, filled=filled, taken=taken))

    async def _compare(self) -> None:
        work: dict[int, int] = {}
        placing = self._job.state.placing
        addresses = placing.addresses()
        statuses = await self._servers.status_all(addresses)
        if sum(len(status.loads) == BUCKETS for status in statuses.values()) < len(addresses):
            # A server without an answer is not idle.
            return
        for status in statuses.values():
            work |= {bucket: load for bucket, load in enumerate(status.loads) if load}
        loads = [max(0, work.get(bucket, 0) - self._work_before.get(bucket, 0)) for bucket in range(BUCKETS)]
        self._work_before = work
        # Each server has counts of its own: the load of a bucket that has moved is unknown since the last
        # look. If that were taken for nothing, buckets would go back and forth. By which map they have counted, the
        # servers say: that of now may have come after their answers.
        versions = {status.ps_map.version for status in statuses.values()}
        version = versions.pop() if len(versions) == 1 else 0
        as_before, self._version_before = 0 < version == self._version_before, version
        current = placing.map is not None and placing.map.version == version
        if as_before and current and placing.next_for(loads):
            log.info("Rebalancing buckets: the parameter servers are unevenly loaded.")
            self._job.do(RebalanceBuckets(loads=loads))
