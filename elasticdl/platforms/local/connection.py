"""The asking side of the local platform's sockets, for an asyncio loop: the host's and the master's alike."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from elasticdl.platforms.local.messages import (
    LONGEST_LINE,
    Answer,
    Changed,
    Done,
    Nodes,
    Refused,
    Request,
    decode,
    encode,
)

Asked = TypeVar("Asked", Done, Nodes)


class Connection:
    """Several questions may be under way at once; all raise ConnectionError when the other side is gone."""

    def __init__(
        self,
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        changed: Callable[[Changed], None] | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None:
        """`changed` hears the answers to a `Watch`; `lost` that nothing will come any more."""
        self._reader = reader
        self._writer = writer
        self._changed = changed
        self._lost = lost
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._reason = "the other side has closed the connection"
        self._listening = asyncio.ensure_future(self._listen())
        # Not at the end of the coroutine, which Python also runs when it throws a forgotten one away.
        self._listening.add_done_callback(self._end)

    @classmethod
    async def open(
        cls,
        where: Path | socket.socket,
        *,
        changed: Callable[[Changed], None] | None = None,
        lost: Callable[[], None] | None = None,
    ) -> Connection:
        """Raises OSError if nothing listens there."""
        if isinstance(where, socket.socket):
            reader, writer = await asyncio.open_unix_connection(sock=where, limit=LONGEST_LINE)
        else:
            reader, writer = await asyncio.open_unix_connection(str(where), limit=LONGEST_LINE)
        return cls(reader=reader, writer=writer, changed=changed, lost=lost)

    async def ask(self, make: Callable[[int], Request], kind: type[Asked]) -> Asked:
        """`make` gets the number of the request. Raises ValueError for a request that is too long to be accepted."""
        number = next(self._ids)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            await self.tell(make(number))
            answer = await answered
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, Refused):
            raise ValueError(answer.message)
        if not isinstance(answer, kind):
            raise ConnectionError(f"{type(answer).__name__} is no answer to request {number}")
        return answer

    async def tell(self, request: Request) -> None:
        """Sends a request that has no single answer."""
        if self._listening.done():
            raise ConnectionError("the connection is closed")
        line = encode(request)
        decode(
            line
        )  # the other side would refuse the line and hang up; here the caller learns which of his it was
        self._writer.write(line)
        await self._writer.drain()

    def end(self) -> None:
        """Says that nothing more will be asked; what the other side still has to say is heard."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                answer = decode(line)
                if isinstance(answer, Changed):
                    if self._changed is not None:
                        self._changed(answer)
                elif isinstance(answer, (Done, Nodes, Refused)) and answer.id in self._waiting:
                    waiting = self._waiting[answer.id]
                    if not waiting.done():
                        waiting.set_result(answer)
                elif isinstance(answer, Refused):
                    self._reason = answer.message
        except (OSError, ValueError) as error:  # ValueError: no message, or a line longer than the limit
            self._reason = str(error)

    def _end(self, _: asyncio.Task[None]) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(self._reason))
        if self._lost is not None:
            self._lost()
