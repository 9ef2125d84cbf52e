"""Something that serves on an event loop, in a thread of a test: started, asked and stopped from outside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


class ServingThread:
    """`serve` gets what it calls when it answers, and an event that says when it is to end."""

    def __init__(self, serve: Callable[[Callable[[], None], asyncio.Event], Awaitable[None]]) -> None:
        """Returns when it answers. What keeps it from that is raised here."""
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(serve,))
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def do(self, what: Callable[[], _Result]) -> _Result:
        """Something that has to be done in its own thread."""

        async def inside() -> _Result:
            return what()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, serve: Callable[[Callable[[], None], asyncio.Event], Awaitable[None]]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(serve(lambda: self._ready.set_result(None), self._stopping))
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            self._loop.close()
