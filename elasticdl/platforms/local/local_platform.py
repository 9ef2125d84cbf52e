"""Nodes as processes of this machine, as the job's master uses them.

The processes are the host's (see `host`), which outlives any master: a restarted master reconnects, and gets the list
of running nodes and of those that have ended meanwhile. So nothing is retried here. A broken connection means that the
host has died, and with it, within moments, everything of the job, this process included.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

from elasticdl.platforms.local.connection import Asked, Connection
from elasticdl.platforms.local.messages import Changed, Done, ListNodes, Nodes, Request, Start, Stop, Watch
from elasticdl.platforms.platform import MASTER_ROLE, NodeRequest, NodeStatus, Platform

_HOST = "127.0.0.1"


class PlatformGone(Exception):
    """The host of the job is not there any more: nothing can be started, and nothing is running."""


class LocalPlatform(Platform):
    """Connects when first used. The master, though a process of the host too, is none of its own nodes."""

    def __init__(self, socket_path: Path) -> None:
        self._socket_path = socket_path
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._watching: set[Connection] = set()
        self._closed = False

    async def start(self, request: NodeRequest) -> None:
        """A command that cannot be run is no error here: the node's status says so."""
        await self._ask(lambda number: Start(id=number, node=request), Done)

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        await self._ask(lambda number: Stop(id=number, name=name, grace_seconds=grace_seconds), Done)

    async def nodes(self) -> list[NodeStatus]:
        answer = await self._ask(lambda number: ListNodes(id=number), Nodes)
        return [node for node in answer.nodes if node.role != MASTER_ROLE]

    async def events(self) -> AsyncIterator[NodeStatus]:
        """Ends when the platform is closed; raises `PlatformGone` when it is gone."""
        news: asyncio.Queue[NodeStatus | None] = asyncio.Queue()

        def changed(message: Changed) -> None:
            if message.node.role != MASTER_ROLE:
                news.put_nowait(message.node)

        # A connection of its own, so that the iterator can be dropped at any time.
        connection = await self._open(changed, lambda: news.put_nowait(None))
        self._watching.add(connection)
        try:
            await connection.tell(Watch(id=0))
            while (status := await news.get()) is not None:
                yield status
        except OSError as error:
            raise self._gone() from error
        finally:
            self._watching.discard(connection)
            await connection.close()
        if not self._closed:
            raise self._gone()

    async def addresses(self, places: dict[str, int]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with ExitStack() as taken:
            for role, count in places.items():
                found[role] = []
                for _ in range(count):
                    # All are kept until the last is found, or one port would be found twice.
                    probe = taken.enter_context(socket.socket())
                    probe.bind((_HOST, 0))
                    found[role].append(f"{_HOST}:{probe.getsockname()[1]}")
        return found

    async def close(self) -> None:
        self._closed = True
        connections = [*self._watching, *([self._connection] if self._connection else [])]
        for connection in connections:
            await connection.close()

    async def _ask(self, make: Callable[[int], Request], kind: type[Asked]) -> Asked:
        async with self._connecting:
            if self._connection is None:
                self._connection = await self._open()
        try:
            return await self._connection.ask(make, kind)
        except OSError as error:
            raise self._gone() from error

    async def _open(
        self, changed: Callable[[Changed], None] | None = None, lost: Callable[[], None] | None = None
    ) -> Connection:
        if self._closed:
            raise PlatformGone("this platform has been closed")
        try:
            return await Connection.open(self._socket_path, changed=changed, lost=lost)
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> PlatformGone:
        return PlatformGone(f"nothing listens at {self._socket_path}: the host of the job is gone")
