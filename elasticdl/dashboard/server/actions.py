"""The actions on a job that a page offers, if the dashboard's owner has allowed them (`--allow_actions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from elasticdl.catalog.job import Job
from elasticdl.errors import UserError

_REASON = "asked for on the dashboard"
# A stop lasts until the checkpoint is written. What takes longer goes on after the reply.
_WAIT_SECONDS = 2.0
_MOST_NODES = 100_000
NAMES = ("scale", "stop", "resume", "delete")


class JobActions:
    """Runs actions to their end, also if the caller has gone."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[str]] = set()

    async def run(self, work: Any) -> str:
        """Returns what was done, in words. Raises `UserError` if it was refused before the reply."""
        task: asyncio.Task[str] = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finish)
        done, _ = await asyncio.wait({task}, timeout=_WAIT_SECONDS)
        return task.result() if done else "It is under way."

    def _finish(self, task: asyncio.Task[str]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # The page sees the state of the job, whatever became of it.
            task.exception()


async def act(job: Job, name: str, arguments: Mapping[str, Any]) -> str:
    """Does it, and returns what was done. Raises `UserError`."""
    if name == "scale":
        return await _scale(job, arguments)
    if name == "stop":
        await job.check_running()
        await job.stop(_REASON)
        return f"Job {job.name} has stopped."
    if name == "resume":
        await job.resume()
        return f"Job {job.name} is resumed."
    if name == "delete":
        await job.delete()
        return f"Job {job.name} is deleted."
    raise UserError(f"There is no action {name!r}.", hint=f"There are: {', '.join(NAMES)}.")


async def _scale(job: Job, arguments: Mapping[str, Any]) -> str:
    counts: dict[str, int] = {}
    for key in ("num_workers", "num_ps"):
        value = arguments.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value <= _MOST_NODES:
            raise UserError(f"{key}: {value!r} is no number of nodes.")
        counts[key] = value
    if not counts:
        raise UserError("Give the desired size: num_workers, num_ps, or both.")
    await job.check_running()
    result = await job.scale(num_workers=counts.get("num_workers"), num_ps=counts.get("num_ps"))
    if result is None:
        return f"Job {job.name} goes to the desired size as soon as its master has seen it."
    return f"Job {job.name} goes {result.message}." if result.message else f"Job {job.name} has that size."
