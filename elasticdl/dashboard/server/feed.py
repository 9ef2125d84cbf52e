"""Live documents: read while they have viewers, and sent as changes.

A document is a set of sections, each a JSON text. One reader serves all viewers of a document, and rests while there
are none. Each reading that differs becomes an event with a number. A viewer that reconnects names the last event it has
seen (Last-Event-ID) and receives the later ones; if they are no longer kept, or the server was restarted, it receives
the whole document.

Failure modes
    A document cannot be read for a moment: the section `problem` has the reason, the others stay as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass

from elasticdl.dashboard.data.sections import PROBLEM, Sections, to_json
from elasticdl.errors import UserError

# Events that are kept for viewers that come back.
_EVENTS_KEPT = 120
# Proxies and browsers drop connections on which nothing is sent.
_KEEP_ALIVE_SECONDS = 15.0
# The maximal part of the time spent reading, some of it the master's. But no page is older than a few seconds.
_READING_SHARE = 0.1
_MOST_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class FeedEvent:
    """`sections`: what is new; None for what is gone. `is_whole`: they replace all that the viewer has."""

    id: str
    sections: Mapping[str, str | None]
    is_whole: bool = False

    def to_stream(self) -> str:
        """Formats the update as a server-sent event."""
        body = ",".join(f"{json.dumps(key)}:{text or 'null'}" for key, text in self.sections.items())
        kind = "whole" if self.is_whole else "change"
        return f"id: {self.id}\nevent: {kind}\ndata: {{{body}}}\n\n"


class Feed:
    """A live document."""

    def __init__(self, read: Callable[[], Awaitable[Sections]], *, interval_seconds: float = 1.0) -> None:
        self._read = read
        self._interval_seconds = interval_seconds
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._sections: Sections = {}
        self._events: deque[tuple[int, FeedEvent]] = deque(maxlen=_EVENTS_KEPT)
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._viewers = 0
        self._reader: asyncio.Task[None] | None = None

    @property
    def has_viewers(self) -> bool:
        return self._viewers > 0

    async def current(self) -> Sections:
        """Returns the document, not older than the interval. Raises `UserError` if it cannot be read."""
        await self._refresh(fresh=True)
        if PROBLEM in self._sections and len(self._sections) == 1:
            raise UserError(json.loads(self._sections[PROBLEM]))
        return dict(self._sections)

    async def events(self, last_id: str = "") -> AsyncGenerator[FeedEvent | None, None]:
        """Yields events until it is closed; None to keep a connection alive."""
        self._viewers += 1
        if self._reader is None:
            self._reader = asyncio.create_task(self._run())
        try:
            await self._refresh(fresh=True)
            seen = self._number_of(last_id)
            while True:
                if seen is None or (self._events and seen < self._events[0][0] - 1):
                    seen = self._number
                    yield FeedEvent(id=self._id(seen), sections=dict(self._sections), is_whole=True)
                for number, event in [each for each in self._events if each[0] > seen]:
                    seen = number
                    yield event
                changed = self._changed
                if seen == self._number:
                    try:
                        await asyncio.wait_for(changed.wait(), _KEEP_ALIVE_SECONDS)
                    except asyncio.TimeoutError:
                        yield None
        finally:
            self._viewers -= 1
            if not self._viewers and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await self._refresh()
            took = time.monotonic() - began
            await asyncio.sleep(max(self._interval_seconds, min(took / _READING_SHARE, _MOST_SECONDS)))

    async def _refresh(self, *, fresh: bool = False) -> None:
        """`fresh`: a reading that is younger than the interval is enough."""
        async with self._lock:
            if fresh and self._sections and time.monotonic() - self._read_at < self._interval_seconds:
                return
            try:
                sections = await self._read()
            except UserError as error:
                sections = {**self._sections, PROBLEM: to_json(str(error))}
            self._read_at = time.monotonic()
            self._publish(sections)

    def _publish(self, sections: Sections) -> None:
        changes: dict[str, str | None] = {
            key: text for key, text in sections.items() if self._sections.get(key) != text
        }
        changes.update(dict.fromkeys(self._sections.keys() - sections.keys()))
        if not changes:
            return
        self._sections = sections
        self._number += 1
        self._events.append((self._number, FeedEvent(id=self._id(self._number), sections=changes)))
        self._changed.set()
        self._changed = asyncio.Event()

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _number_of(self, event_id: str) -> int | None:
        epoch, _, number = event_id.partition("-")
        if epoch != self._epoch:
            return None
        with contextlib.suppress(ValueError):
            if 0 <= int(number) <= self._number:
                return int(number)
        return None
