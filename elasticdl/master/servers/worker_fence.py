"""Fences a worker that has ended, and asks the parameter servers which of its batches every bucket has applied.

These batches are done, though the worker did not report them. The servers reject its later pushes. A batch that no
bucket has is trained again; one that all have must not be. So the fence is repeated until it is known for all buckets.
If the worker ended in the middle of a push, some buckets have the batch and others do not: another worker gets it,
whose push is applied to the buckets that lack it, and only recorded by the others.

Failure modes
    A bucket is in handover: no server answers for it, and the fence is repeated. A server was lost together with the
    worker, as with a machine: once the platform reports that, its backups are asked. A server hangs: the fence waits
    until it counts as unresponsive, since no worker can push to it either. The model is lost: its batches do not count.
    It takes longer than all that: nothing is credited, the unreported batches are trained again, and the audit reports
    that they may count twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elasticdl.master.commands.nodes import PartialPush, PushCredit
from elasticdl.master.health.timeouts import Timeouts
from elasticdl.master.servers.bucket_placement import BucketPlacement
from elasticdl.master.settings import JobSettings
from elasticdl.master.wakeup import Signal
from elasticdl.ps.client.coordinator import Coordinator, in_common
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.wire import ps_pb2

log = logging.getLogger("elasticdl.master")

# A platform knows of the end of all that was on a lost machine within a minute or so of each other.
_PATIENCE_SECONDS = 120.0
# A handover is over within the time of a few calls, and servers know of it before the master does.
_PAUSE_SECONDS = 0.2
# Workers of a whole machine may go together. A server lets a few calls at a time wait for its backups, and some of
# those places are for other calls.
_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class LastWord:
    """The batches to credit to a worker that has ended; or the fact that it may have pushed an unknown number more than
    it has reported.
    """

    credit: PushCredit | None = None
    partial: PartialPush | None = None
    in_doubt: bool = False


def patience(plan: JobSettings) -> float:
    """Returns the seconds until all servers have answered, or count as lost."""
    return _PATIENCE_SECONDS + Timeouts.of(plan).server_seconds(replaceable=False)


class FencedState(Protocol):
    @property
    def plan(self) -> JobSettings: ...

    @property
    def placing(self) -> BucketPlacement: ...

    @property
    def generation(self) -> int: ...

    @property
    def training_over(self) -> bool: ...

    @property
    def outcome(self) -> str: ...


class FencedJob(Protocol):
    """The part of the master that the fence uses."""

    @property
    def state(self) -> FencedState: ...

    @property
    def changed(self) -> Signal: ...


class WorkerFence:
    def __init__(self, job: FencedJob, servers: Coordinator, clock: Callable[[], float]) -> None:
        self._job = job
        self._servers = servers
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def last_word(self, worker: str) -> LastWord:
        """Returns the last batch of a worker that has ended."""
        state = self._job.state
        generation, deadline = state.generation, math.inf
        heard = ps_pb2.FenceReply()
        # Without a map there is no model that it could have pushed to.
        while state.placing.map is not None and self._matters(generation):
            async with self._turns:
                # Not while others have their turn.
                deadline = min(deadline, self._clock() + patience(state.plan))
                reply = await self._servers.fence_all(state.placing.addresses(), worker, generation)
            heard = in_common([heard, reply])
            if len(heard.buckets) == BUCKETS:
                return LastWord(credit=_credit(heard), partial=_partial(heard), in_doubt=len(heard.newer) > 1)
            if self._clock() >= deadline:
                missing = BUCKETS - len(heard.buckets)
                log.warning(
                    "%s could not be fenced at the parameter servers: no server has %d of the buckets. What it has not "
                    "reported is trained again, and may count twice.",
                    worker,
                    missing,
                )
                return LastWord(in_doubt=True)
            await self._job.changed.wait(_PAUSE_SECONDS)
        return LastWord()

    def _matters(self, generation: int) -> bool:
        state = self._job.state
        return state.generation == generation and not state.training_over and not state.outcome


def _credit(last: ps_pb2.FenceReply) -> PushCredit | None:
    if last.lease_id == 0:
        return None
    return PushCredit(lease_id=last.lease_id, position=last.position, batches=last.batches)


def _partial(last: ps_pb2.FenceReply) -> PartialPush | None:
    """A worker pushes one batch at a time, so there is at most one that only some buckets have had."""
    if len(last.newer) != 1 or last.newer[0].lease_id == 0:
        return None
    batch = last.newer[0]
    return PartialPush(
        lease_id=batch.lease_id, position=batch.position, batches=batch.batches, buckets=batch.buckets.hex()
    )
