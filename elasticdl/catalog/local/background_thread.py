"""Blocking calls inside an event loop.

`asyncio.to_thread` would do, but the end of the loop waits for its threads: Ctrl-C would take as long as the longest
timeout of a call. These threads are daemons, so nothing waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(function: Callable[[], _Result]) -> _Result:
    """Returns what the function returns, and raises what it raises. Cancelling abandons the call."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result: _Result | None = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - raised in the event loop
            failure = error
        # The loop may be closed by now: then the result is not wanted.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=call, name="elasticdl-call", daemon=True).start()
    return await future
