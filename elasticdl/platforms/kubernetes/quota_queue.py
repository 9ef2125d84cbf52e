"""Nodes that wait for the quota of the namespace.

They are retried in order, for each need apart (role and memory): only the first of those that need the same is
attempted, and the next as soon as one has started. So the API server is asked about as often as if one node waited,
and a node that needs something else (another role, more memory) is not blocked by those before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from elasticdl.platforms.platform import NodeRequest


class QuotaQueue:
    """`attempt` tries to start a node; false if the quota is still used up."""

    def __init__(self, attempt: Callable[[NodeRequest], Awaitable[bool]], *, seconds: float) -> None:
        self._attempt = attempt
        self._seconds = seconds
        # By need: role and doublings of memory.
        self._waiting: dict[tuple[str, int], deque[NodeRequest]] = {}
        self._joined = asyncio.Event()

    def join(self, request: NodeRequest) -> None:
        need = (request.role, request.memory_doublings)
        self._waiting.setdefault(need, deque()).append(request)
        self._joined.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._joined.wait()
            await asyncio.sleep(self._seconds)
            for waiting in list(self._waiting.values()):
                while waiting and await self._attempt(waiting[0]):
                    waiting.popleft()
            if not any(self._waiting.values()):
                self._joined.clear()
