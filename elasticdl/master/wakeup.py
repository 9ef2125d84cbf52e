"""Wakes tasks that wait for a change, inside one event loop."""

from __future__ import annotations

import asyncio


class Signal:
    """Many may wait; firing wakes all who wait now."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    def __bool__(self) -> bool:
        """Whether a task waits."""
        return bool(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Returns when fired, or when the time is over."""
        # Not by asyncio.wait_for: up to Python 3.11 it forgets that its caller was cancelled if both come at once.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.add(future)
        timer = loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
