"""Blocking calls inside an event loop: results, errors, and a cancellation that does not wait for the call."""

from __future__ import annotations

import asyncio
import threading

import pytest

from elasticdl.catalog.local.background_thread import in_thread


def test_background_thread_returns_its_result() -> None:
    assert asyncio.run(in_thread(threading.get_ident)) != threading.get_ident()


def test_error_of_background_thread_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(in_thread(fail))


def test_cancelled_call_is_abandoned() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        release.wait()
        ended.set()

    async def main() -> None:
        task = asyncio.create_task(in_thread(call))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not ended.is_set()
    release.set()
    assert ended.wait(60)
