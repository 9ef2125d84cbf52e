"""The lines of a job's logs, for a page and for its stream.

A position in a stream is the time of the last line and how many lines of that time were sent: logs are merged by time,
so a viewer that comes back gets the lines after it. What is shown is text: the page never reads it as HTML.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from elasticdl.catalog.job import Job, LogLine
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

_MOST_CHARACTERS = 4000
_LINES_IN_EVENT = 500
_QUEUE_LINES = 5000
KEEP_ALIVE_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """`contains`: only lines with this text, in any case. `tail`: of each log only the last so many lines."""

    node: str = ""
    contains: str = ""
    tail: int | None = None


@dataclass(kw_only=True)
class LogPosition:
    """The position of the last line that was sent."""

    moment: float | None = None
    count: int = 0

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        moment, _, count = text.partition("/")
        try:
            return cls(moment=float(moment), count=int(count))
        except ValueError:
            return cls()

    def __str__(self) -> str:
        return "" if self.moment is None else f"{self.moment!r}/{self.count}"

    def advance(self, line: LogLine) -> None:
        if line.moment is None:
            return
        self.count = self.count + 1 if line.moment == self.moment else 1
        self.moment = line.moment


async def check_node(job: Job, request: LogRequest) -> None:
    """Raises `UserError` if the job has no log of the node. The names of logs are names of files."""
    if not request.node:
        return
    names = await job.log_names()
    if request.node not in names:
        raise UserError(f"Job {job.name} has no log of {request.node!r}.{did_you_mean(request.node, names)}")


def line_document(line: LogLine) -> dict[str, Any]:
    text = line.text
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}… ({len(line.text) - _MOST_CHARACTERS} more characters)"
    return {"node": line.node, "text": text, "time": line.moment}


async def read_lines(job: Job, request: LogRequest) -> list[dict[str, Any]]:
    """Returns the lines there are now."""
    lines = job.logs(request.node, tail=request.tail)
    return [line_document(line) async for line in lines if _matches(line, request)]


async def follow_lines(
    job: Job, request: LogRequest, position: LogPosition
) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
    """Yields batches of lines with the position behind them, until the job ends; empty ones keep a connection alive."""
    queue: asyncio.Queue[LogLine | None] = asyncio.Queue(maxsize=_QUEUE_LINES)
    resumed = position.moment is not None
    seen, at = position.count, position.moment

    async def read() -> None:
        try:
            async for line in job.logs(
                request.node, follow=True, tail=None if resumed else request.tail, since=position.moment
            ):
                await queue.put(line)
        finally:
            await queue.put(None)

    reading = asyncio.create_task(read())
    try:
        is_over = False
        while not is_over:
            try:
                batch = [await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)]
            except asyncio.TimeoutError:
                yield [], str(position)
                continue
            while len(batch) < _LINES_IN_EVENT and not queue.empty():
                batch.append(queue.get_nowait())
            is_over = batch[-1] is None
            found = []
            for line in batch:
                if line is None:
                    continue
                if resumed and seen and (line.moment is None or line.moment == at):
                    seen -= line.moment == at
                    continue
                position.advance(line)
                if _matches(line, request):
                    found.append(line_document(line))
            yield found, str(position)
        await reading
    finally:
        reading.cancel()


def _matches(line: LogLine, request: LogRequest) -> bool:
    return request.contains.lower() in line.text.lower()
