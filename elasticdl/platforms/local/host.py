"""The host of a job on this machine: inside `elasticdl train` or a notebook, owner of all other processes.

The command starts the job's master through its host, and the master its parameter servers and workers, over a
socket. All of them are children of the host's keeper (see `keeper`), which serves that socket, survives a
master, and does not survive the host: however the host ends, nothing of the job is left running.

Every method may be called from any thread and blocks until it is done; a KeyboardInterrupt in the middle of
one leaves the host in order, because all talking to the keeper is done by one thread of the host's own.

Failure modes. If the keeper is killed, its nodes are too; they are then listed as killed, and the next
`spawn` starts another keeper at the same socket, which knows of the earlier nodes. Two hosts cannot run the
same job: the log folder is locked by the keeper, for as long as anything of the job may be running.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from elasticdl.errors import UserError
from elasticdl.platforms.local import process_tree
from elasticdl.platforms.local.connection import Connection
from elasticdl.platforms.local.launch import KEEPER_LOG, listen, prepare_log_folder, start_keeper, take_lock
from elasticdl.platforms.local.log_files import LOG_BYTES, log_path, tail
from elasticdl.platforms.local.messages import Changed, Done, Recall, Start, Stop, Watch
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

_Result = TypeVar("_Result")

# The keeper gives processes that hang in the kernel some seconds; after that it is the keeper that hangs.
_KEEPER_SECONDS = 15.0


class Host:
    """All processes of one job. `environment` is the whole of what nodes begin with, usually `os.environ`."""

    def __init__(
        self,
        socket_path: Path,
        log_folder: Path,
        environment: Mapping[str, str],
        *,
        log_bytes: int = LOG_BYTES,
    ) -> None:
        self._socket_path = Path(socket_path)
        # Resolved because it marks the job's processes: there must be one way to write it.
        self._log_folder = Path(log_folder).resolve()
        self._environment = dict(environment)
        self._log_bytes = log_bytes
        self._owner = os.getpid()
        # An epoll would be shared with forked copies of this process: what they close, the host would lose.
        self._loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        self._thread = threading.Thread(target=self._loop.run_forever, name="elasticdl-host", daemon=True)
        self._changed = threading.Condition()
        self._statuses: dict[str, NodeStatus] = {}
        self._pids: dict[str, int] = {}
        # The rest belongs to the thread.
        self._listener: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._starting_keeper = asyncio.Lock()
        self._gone = asyncio.Event()
        self._closing = False

    def __enter__(self) -> Host:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Returns when a master can connect. Processes that an earlier host of the job left are killed first."""
        self._thread.start()
        # Without this nothing would be left running either, but the end of this process would not wait for it.
        atexit.register(self.close)
        try:
            self._do(self._connected())
        except BaseException:
            self.close()
            raise

    def spawn(self, request: NodeRequest, *, again: bool = False) -> NodeStatus:
        """Starts a node and tells what became of it.

        A name that was used before changes nothing, unless the node has ended and is wanted `again`; it then
        goes on with the same log.
        """
        self._do(self._spawn(request, again=again))
        with self._changed:
            return self._statuses[request.name]

    def terminate(self, name: str, grace_seconds: float) -> None:
        """Asks the node to end, and returns; it is killed after the grace. Unknown names are ignored."""
        self._do(self._stop([name], grace_seconds))

    def wait(self, name: str, timeout: float | None = None) -> NodeStatus:
        """Returns when the node has ended. KeyError: there is no such node. TimeoutError: it still runs."""
        with self._changed:
            if not self._changed.wait_for(lambda: _ended(self._statuses[name]), timeout):
                raise TimeoutError(f"{name} has not ended within {timeout} s")
            return self._statuses[name]

    def statuses(self) -> list[NodeStatus]:
        """All processes ever started here, the master's included, in the order of their first start."""
        with self._changed:
            return list(self._statuses.values())

    def pid(self, name: str) -> int | None:
        """The process of a running node; none if it is not running."""
        with self._changed:
            return self._pids.get(name)

    def tail(self, name: str, lines: int = 50) -> list[str]:
        """The last lines of a node's log."""
        return tail(log_path(self._log_folder, name), lines)

    def stop_all(self, grace_seconds: float) -> None:
        """Asks all to end, and returns when all have. What is started meanwhile is stopped too."""
        deadline = time.monotonic() + grace_seconds
        asked: set[str] = set()
        while True:
            with self._changed:
                while self._pids and self._pids.keys() <= asked:
                    self._changed.wait()
                running = set(self._pids)
            if not running:
                return
            self._do(self._stop(sorted(running - asked), max(0.0, deadline - time.monotonic())))
            asked |= running

    def kill_all(self) -> None:
        self.stop_all(0.0)

    def close(self) -> None:
        """Kills what still runs, and returns when nothing does. The host cannot be started again."""
        if os.getpid() != self._owner or self._loop.is_closed():
            return  # a forked copy shares too much with the host to be allowed to take it apart
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._do(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _connected(self) -> Connection:
        async with self._starting_keeper:
            if self._closing:
                raise UserError("The host has been closed.")
            if self._connection is not None:
                return self._connection
            connection = await self._start_keeper()
            if not self._gone.is_set():
                self._connection = connection
            return connection

    async def _start_keeper(self) -> Connection:
        prepare_log_folder(self._log_folder)
        lock = take_lock(self._log_folder)
        try:
            process_tree.kill_marked(str(self._log_folder))
            if self._listener is None:
                self._listener = listen(self._socket_path)
            self._keeper, channel = start_keeper(
                listener=self._listener,
                lock=lock,
                log_folder=self._log_folder,
                log_bytes=self._log_bytes,
                environment=self._environment,
            )
        finally:
            os.close(lock)
        self._gone.clear()
        connection = await Connection.open(channel, changed=self._hear, lost=self._lost)
        # A keeper that is gone already shows in the next question.
        with contextlib.suppress(ConnectionError):
            await connection.tell(Recall(id=0, nodes=tuple(self.statuses())))
            await connection.tell(Watch(id=0))
        return connection

    async def _spawn(self, request: NodeRequest, *, again: bool) -> None:
        for _ in range(2):
            connection = await self._connected()
            try:
                await connection.ask(lambda number: Start(id=number, node=request, again=again), Done)
            except ConnectionError:
                continue  # cleared up already, see _lost
            return
        last_output = "\n".join(tail(self._log_folder / KEEPER_LOG, 20))
        raise UserError("The process that keeps the job's nodes does not stay alive.", hint=last_output)

    async def _stop(self, names: list[str], grace_seconds: float) -> None:
        await asyncio.gather(*(self._stop_one(name, grace_seconds) for name in names))

    async def _stop_one(self, name: str, grace_seconds: float) -> None:
        if self._connection is None:
            return
        with contextlib.suppress(ConnectionError):  # then it has been killed
            await self._connection.ask(
                lambda number: Stop(id=number, name=name, grace_seconds=grace_seconds), Done
            )

    async def _close(self) -> None:
        async with self._starting_keeper:
            self._closing = True
        if self._connection is not None and self._keeper is not None:
            self._connection.end()
            try:
                await asyncio.wait_for(self._gone.wait(), _KEEPER_SECONDS)
            except asyncio.TimeoutError:
                self._keeper.kill()
                await self._gone.wait()
        if self._listener is not None:
            self._listener.close()
            self._socket_path.unlink(missing_ok=True)

    def _hear(self, message: Changed) -> None:
        with self._changed:
            self._statuses[message.node.name] = message.node
            if message.pid is None:
                self._pids.pop(message.node.name, None)
            else:
                self._pids[message.node.name] = message.pid
            self._changed.notify_all()

    def _lost(self) -> None:
        """The keeper has exited, on request or because it was killed."""
        assert self._keeper is not None
        if self._keeper.wait() != 0 or self._pids:
            self._clear_up()
        self._connection = None
        self._gone.set()

    def _clear_up(self) -> None:
        with self._changed:
            for name, pid in self._pids.items():
                process_tree.kill_group(pid)
                self._statuses[name] = replace(
                    self._statuses[name],
                    phase=NodePhase.FAILED,
                    reason=EndReason.STOPPED if self._closing else EndReason.KILLED,
                    exit_code=128 + signal.SIGKILL,
                    message="killed because the process that keeps the job's nodes was lost",
                )
            process_tree.kill_marked(str(self._log_folder))
            self._pids.clear()
            self._changed.notify_all()


def _ended(status: NodeStatus) -> bool:
    return status.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED)
