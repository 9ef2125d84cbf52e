"""Wakes the stream of each connected node when its directive has changed.

Thousands of nodes may be connected, and most changes of the state (a node joins or ends) concern few of them or none.
So one task looks at every change: it builds the common part of all directives once, compares the part of each node, and
wakes only the streams with news. Otherwise each change would wake every stream, and each of them would build its whole
directive.

Failure modes
    The task runs while a stream is open, and ends with the last one. A waiting stream also checks at its timeout, so
    news that it missed are late and not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from elasticdl.master.master import Master
from elasticdl.master.services.directives import NodePart, combine, common_directive, node_part
from elasticdl.master.wakeup import Signal
from elasticdl.wire import master_pb2 as pb

# Only as long as changes may go unseen: each one wakes the task.
_LONGEST_WAIT_SECONDS = 20.0


class DirectiveStream:
    """The stream of one connection of a node."""

    def __init__(self, board: DirectiveBoard, node: str) -> None:
        self._board = board
        self._node = node
        self.has_news = True
        self._signal = Signal()

    def directive(self) -> pb.Directive:
        """Returns the node's directive as of the last change."""
        self.has_news = False
        return self._board.directive(self._node)

    def wake(self) -> None:
        self.has_news = True
        self._signal.fire()

    async def wait(self, seconds: float) -> None:
        """Returns when the directive has changed since it was asked for, or when the time is over."""
        if not self.has_news:
            await self._signal.wait(seconds)


class DirectiveBoard:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._streams: dict[str, list[DirectiveStream]] = {}
        self._common = pb.Directive()
        self._parts: dict[str, NodePart] = {}
        self._watcher: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def open_stream(self, node: str) -> Iterator[DirectiveStream]:
        """To be held as long as a node's call for directives is open."""
        stream = DirectiveStream(self, node)
        self._streams.setdefault(node, []).append(stream)
        if self._watcher is None:
            self._update()
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield stream
        finally:
            self._streams[node].remove(stream)
            if not self._streams[node]:
                del self._streams[node]
                self._parts.pop(node, None)
            if not self._streams:
                self._watcher.cancel()
                self._watcher = None

    def directive(self, node: str) -> pb.Directive:
        part = self._parts.get(node)
        if part is None:
            part = self._parts[node] = node_part(self._master.state, node, leader=self._leader())
        return combine(self._common, part)

    async def _watch(self) -> None:
        while True:
            await self._master.changed.wait(_LONGEST_WAIT_SECONDS)
            self._update()

    def _update(self) -> None:
        state = self._master.state
        common = common_directive(
            state, save_to=str(self._master.checkpointer.save_folder()) if state.barrier else ""
        )
        is_new = common != self._common
        self._common = common
        leader = self._leader()
        for node, streams in self._streams.items():
            part = node_part(state, node, leader=leader)
            if is_new or part != self._parts.get(node):
                self._parts[node] = part
                for stream in streams:
                    stream.wake()

    def _leader(self) -> str:
        leader = self._master.state.leader()
        return leader.name if leader is not None else ""
