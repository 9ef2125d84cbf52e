"""When the host is gone, every call of its master raises `PlatformGone`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform, PlatformGone
from elasticdl.platforms.platform import NodeRequest


def test_before_it_was_there(tmp_path: Path) -> None:
    async def ask() -> None:
        await LocalPlatform(tmp_path / "socket").nodes()

    with pytest.raises(PlatformGone, match=str(tmp_path / "socket")):
        asyncio.run(ask())


def test_while_it_is_asked_and_watched(host: Host, node: Callable[..., NodeRequest], tmp_path: Path) -> None:
    async def outlive() -> None:
        platform = LocalPlatform(tmp_path / "socket")
        await platform.start(node("worker-0", "sleep", "1000"))
        events = platform.events()
        await events.__anext__()
        await asyncio.to_thread(host.close)
        with pytest.raises(PlatformGone):
            async for _ in events:
                pass
        with pytest.raises(PlatformGone):
            await platform.nodes()
        with pytest.raises(PlatformGone):
            await platform.start(node("worker-1", "true"))
        with pytest.raises(PlatformGone):
            await platform.stop("worker-0", grace_seconds=1)
        with pytest.raises(PlatformGone):
            await platform.events().__anext__()
        await platform.close()

    asyncio.run(asyncio.wait_for(outlive(), 60))


def test_invalid_name_is_a_value_error(host: Host, node: Callable[..., NodeRequest], tmp_path: Path) -> None:
    async def ask() -> None:
        platform = LocalPlatform(tmp_path / "socket")
        with pytest.raises(ValueError, match="is no name for a node"):
            await platform.start(node("../worker", "true"))
        assert await platform.nodes() == []
        await platform.close()

    asyncio.run(asyncio.wait_for(ask(), 60))
