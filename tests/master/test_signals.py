"""Waiting for a change ends when it comes, when the time is over, and when the one who waits is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from elasticdl.master.wakeup import Signal


def test_fired_and_cancelled_at_once() -> None:
    async def inside() -> None:
        signal = Signal()
        waiting = asyncio.create_task(signal.wait(3600))
        await asyncio.sleep(0)
        assert signal
        signal.fire()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not signal

    asyncio.run(inside())


def test_the_time_is_over() -> None:
    async def inside() -> None:
        signal = Signal()
        await signal.wait(0)
        assert not signal

    asyncio.run(inside())
