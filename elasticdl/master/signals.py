"""Waking those who wait for a change, inside one event loop."""

from __future__ import annotations

import asyncio


class Signal:
    """Many may wait; firing wakes all who wait now."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def __bool__(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Returns when fired, or when the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except (asyncio.TimeoutError, TimeoutError):
            pass
        finally:
            self._waiting.discard(future)
