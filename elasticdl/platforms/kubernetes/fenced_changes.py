"""Changes to a job's objects that only the job's current master makes.

A master may be cut off from the cluster and replaced meanwhile. So every attempt of a change is preceded by the check
`before_changes`, which raises if there is another master. One check serves all changes that are about to be made.

Failure modes
    An API server that does not answer: attempts are short, and each is checked again. An API server that has just
    started refuses everything for some seconds, as if a right were missing: `insist` retries for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from elasticdl.platforms.kubernetes.client import MAY_NOT, ClusterAway, ClusterError, Pauses

log = logging.getLogger("elasticdl.platforms")

# One attempt. After that, the check is made again.
ATTEMPT_SECONDS = 5.0
# How long an API server may refuse what it accepted before. After a restart it knows all roles within seconds.
REFUSED_SECONDS = 60.0
_ERROR_INSIDE = 500

_Answer = TypeVar("_Answer")


class FencedChanges:
    """`before_changes`: raises if nothing is this master's to change any more."""

    def __init__(
        self, before_changes: Callable[[], Awaitable[None]] | None, *, clock: Callable[[], float]
    ) -> None:
        self._before_changes = before_changes
        self._clock = clock
        # The check under way, shared by all changes that wait for it.
        self._check: asyncio.Task[None] | None = None

    async def apply(
        self, change: Callable[[], Awaitable[_Answer]], *, through_errors: bool = False
    ) -> _Answer:
        """Attempts the change until the cluster has answered. An error inside the server (500) is an answer, unless
        `through_errors`.
        """
        pauses = Pauses(patience=math.inf)
        while True:
            await self._check_master()
            asks_for: float | None = None
            try:
                return await change()
            except ClusterError as error:
                if not through_errors or error.status != _ERROR_INSIDE:
                    raise
                trouble = error.message
            except ClusterAway as error:
                trouble, asks_for = error.message, error.asks_for
            log.warning("Retrying a change: %s", trouble)
            await pauses.wait(asks_for)

    async def insist(self, change: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Applies a change and repeats it after errors and, for a minute, after refusals: without it, a node that is
        not stopped would be waited for indefinitely.
        """
        pauses, begun = Pauses(patience=math.inf), self._clock()
        while True:
            try:
                return await self.apply(change, through_errors=True)
            except ClusterError as error:
                if error.status not in MAY_NOT or self._clock() - begun >= REFUSED_SECONDS:
                    raise
                log.warning("Retrying a refused change: %s", error.message)
            await pauses.wait()

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)

    async def _check_master(self) -> None:
        if self._before_changes is None:
            return
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().create_task(_wait_for(self._before_changes()))
        await asyncio.shield(self._check)


async def _wait_for(awaitable: Awaitable[None]) -> None:
    await awaitable
