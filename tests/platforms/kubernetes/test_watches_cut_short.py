"""Watches that end at once, by a proxy or by a server that keeps no history: the client backs off between requests.
Runs on a fake clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from elasticdl.platforms.kubernetes.client import Listing
from elasticdl.platforms.kubernetes.watch import watch
from tests.master.fake_time import FakeTime

EXPIRED = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
BROKEN = {"type": "ERROR", "object": {"code": 500, "reason": "InternalError", "message": "broken"}}


class ShortWatches:
    """Each tells these events and ends, in order."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = events
        self.watches = 0

    def path(self, kind: str) -> str:
        return f"/{kind}"

    async def list(self, kind: str, **selection: Any) -> Listing:
        return Listing(items=(), version="1")

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Any, *, read_seconds: float) -> AsyncIterator[ShortWatches]:
        self.watches += 1
        yield self

    async def aiter_lines(self) -> AsyncIterator[str]:
        for event in self.events:
            yield json.dumps(event)


@pytest.mark.parametrize("events", [(), (EXPIRED,), (BROKEN,)], ids=["nothing", "expired", "broken"])
def test_pauses_grow(events: tuple[dict[str, Any], ...]) -> None:
    cluster = ShortWatches(*events)

    async def look() -> None:
        async for _ in watch(cluster, "Pod"):  # type: ignore[arg-type]
            pass

    async def for_a_while() -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(look(), 1000)

    loop = FakeTime()
    try:
        loop.run_until_complete(for_a_while())
    finally:
        loop.close()
    # Every few seconds, after the first of them.
    assert 100 < cluster.watches < 500
