"""Nodes for which there is no room in the namespace (a quota): they stand in line and are tried again.

Only the first of those that need the same asks, and the next as soon as one has got its room: however many wait, the
API server is asked about as often as if it were one. Who needs something else (another role, more memory than those
before it had) does not wait for them, for what it needs may be there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from elasticdl.platforms.platform import NodeRequest


class Line:
    """`attempt` tries to start a node; false if there is still no room for it."""

    def __init__(self, attempt: Callable[[NodeRequest], Awaitable[bool]], *, seconds: float) -> None:
        self._attempt = attempt
        self._seconds = seconds
        # By what they need.
        self._waiting: dict[tuple[str, int], deque[NodeRequest]] = {}
        self._joined = asyncio.Event()

    def join(self, request: NodeRequest) -> None:
        need = (request.role, request.memory_doublings)
        self._waiting.setdefault(need, deque()).append(request)
        self._joined.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._joined.wait()
            await asyncio.sleep(self._seconds)
            for line in list(self._waiting.values()):
                while line and await self._attempt(line[0]):
                    line.popleft()
            if not any(self._waiting.values()):
                self._joined.clear()
