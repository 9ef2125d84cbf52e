"""The keeper: the small process between a host and its nodes, which sees to it that none outlives it.

The host (see `host`) lives inside another process: the command line's, a notebook's. That process has
threads, may be large, may be stopped with Ctrl-Z, and may be killed. So it starts one keeper, and the keeper
starts the nodes. What that buys:

- *Nothing is left running.* The keeper holds one end of a socket whose other end is the host's. When the host
  ends, in whatever way, the kernel closes it, and the keeper kills everything below it and leaves. When the
  keeper itself is killed, the kernel kills its nodes (see `kinship`), and the host cleans up what they have
  left. When both are killed at the same instant, the nodes still die with the keeper; children that they have
  started may live on until the job is run again, which begins by ending them.
- *Safe forks.* Asking to die with one's parent must be done between fork and exec, where a process with
  threads may not run Python. The keeper has one thread. Measured per node: 2.1 ms this way, against 2.7 ms
  through `setpriv --pdeathsig` (not everywhere installed, and blind to a parent that died before) and 14 ms
  through a Python shim. A plain start takes 0.9 ms. The keeper itself starts while the host goes on, and
  takes some 16 MB.
- *Orphans without side effects.* The keeper adopts orphans; were it the host, a notebook would become the
  parent of processes it knows nothing of.
- *Output that flows* while the host is busy or stopped (see `logs`).

It serves the messages of `messages` on the host's socket and to every client of the job's socket: the master. It
imports neither asyncio nor anything outside the standard library, to be there quickly.

Failure modes. A client that sends an invalid message gets an error and is disconnected; a client that does not read
is disconnected when its backlog is too large. SIGTERM, SIGINT and SIGHUP are ignored: when a whole session is
terminated, the host stops the job in order, and the keeper must live until it has.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elasticdl.platforms.local import process_tree
from elasticdl.platforms.local.children import Children
from elasticdl.platforms.local.messages import (
    LONGEST_LINE,
    Answer,
    BadMessage,
    Changed,
    Done,
    ListNodes,
    Nodes,
    Recall,
    Refused,
    Start,
    Stop,
    Watch,
    decode,
    encode,
)
from elasticdl.platforms.platform import NodeStatus

# A forked copy of the host may hold the host's end of the socket open after its death, so the keeper also
# looks this often whether its parent is still the same; and whether the kernel has killed for lack of memory.
_LOOK_SECONDS = 1.0

# Far more than the news of all nodes of any job that fits on one machine.
_MOST_UNREAD = 64 * 1024 * 1024

# A process that survives SIGKILL for this long hangs in the kernel; no process can do more about it.
_KILL_SECONDS = 10.0


class _Client:
    """A connection: the host's, or a master's."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.channel = channel
        self.received = bytearray()
        self.to_send = bytearray()
        self.watch: int | None = None


class Keeper:
    def __init__(
        self, *, host: socket.socket, host_pid: int, listener: socket.socket, log_folder: Path, log_bytes: int
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients: set[_Client] = set()
        self._listener = listener
        self._listener.setblocking(False)
        self._host_pid = host_pid
        self._host_gone = False
        self._host = self._welcome(host)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._children = Children(
            log_folder=log_folder,
            log_bytes=log_bytes,
            changed=self._changed,
            opened=self._register,
            closed=self._unregister,
        )
        self._wake_up = self._hear_signals()

    def run(self) -> None:
        """Returns when the host is gone and nothing of the job runs any more."""
        process_tree.adopt_orphans()
        try:
            while not self._host_gone and os.getppid() == self._host_pid:
                idle = max(0.0, self._children.next_due() - time.monotonic())
                for key, _ in self._selector.select(min(_LOOK_SECONDS, idle)):
                    key.data()
                self._children.tick(time.monotonic())
        finally:
            self._children.kill_everything(seconds=_KILL_SECONDS, wait=self._wait_for_signal)
            for client in self._clients:
                client.channel.settimeout(1.0)
                with contextlib.suppress(OSError):
                    client.channel.sendall(client.to_send)

    def _hear_signals(self) -> socket.socket:
        """Makes signals readable and harmless. By handlers, because SIG_IGN would be inherited by nodes."""
        wake_up, signalled = socket.socketpair()
        wake_up.setblocking(False)
        signalled.setblocking(False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
        self._selector.register(wake_up, selectors.EVENT_READ, self._signalled)
        return wake_up

    def _signalled(self) -> None:
        self._drain_wake_up()
        self._children.reap(time.monotonic())

    def _drain_wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_up.recv(4096):
                pass

    def _wait_for_signal(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_up, selectors.EVENT_READ)
            selector.select(seconds)
        self._drain_wake_up()

    def _register(self, fd: int, react: Callable[[], None]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, react)

    def _unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone again, or there are no descriptors left
            channel, _ = self._listener.accept()
            self._welcome(channel)

    def _welcome(self, channel: socket.socket) -> _Client:
        client = _Client(channel)
        self._clients.add(client)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._serve(client))
        return client

    def _serve(self, client: _Client) -> None:
        if client not in self._clients:  # cut off earlier in the same round
            return
        try:
            data = client.channel.recv(64 * 1024)
        except BlockingIOError:
            self._flush(client)
            return
        except OSError:
            data = b""
        if not data:
            self._part(client)
            return
        client.received += data
        while (end := client.received.find(b"\n")) >= 0:
            line = bytes(client.received[:end])
            del client.received[: end + 1]
            self._hear(client, line)
            if client not in self._clients:
                return
        if len(client.received) > LONGEST_LINE:
            self._send(client, Refused(id=0, message="the line is too long"))
            self._part(client)

    def _part(self, client: _Client) -> None:
        if client is self._host:
            # It may have closed its half only, and still want to hear how everything ends.
            self._host_gone = True
            return
        if client in self._clients:
            self._clients.remove(client)
            self._selector.unregister(client.channel)
            client.channel.close()

    def _hear(self, client: _Client, line: bytes) -> None:
        try:
            request = decode(line)
        except BadMessage as error:
            self._send(client, Refused(id=0, message=str(error)))
            self._part(client)
            return
        if isinstance(request, Start):
            self._children.start(request.node, again=request.again)
            self._send(client, Done(id=request.id))
        elif isinstance(request, Stop):
            self._children.stop(request.name, grace_seconds=request.grace_seconds, now=time.monotonic())
            self._send(client, Done(id=request.id))
        elif isinstance(request, ListNodes):
            nodes = tuple(status for status, _ in self._children.statuses())
            self._send(client, Nodes(id=request.id, nodes=nodes))
        elif isinstance(request, Watch):
            client.watch = request.id
            for status, pid in self._children.statuses():
                self._send(client, Changed(id=request.id, node=status, pid=pid))
        elif isinstance(request, Recall):
            self._children.recall(request.nodes)
            self._send(client, Done(id=request.id))
        else:
            self._send(client, Refused(id=request.id, message="an answer is no request"))

    def _changed(self, status: NodeStatus, pid: int | None) -> None:
        for client in list(self._clients):
            if client.watch is not None:
                self._send(client, Changed(id=client.watch, node=status, pid=pid))

    def _send(self, client: _Client, answer: Answer) -> None:
        if client not in self._clients:
            return
        client.to_send += encode(answer)
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            sent = client.channel.send(client.to_send) if client.to_send else 0
        except BlockingIOError:
            sent = 0
        except OSError:  # it has gone
            client.to_send.clear()
            self._part(client)
            return
        del client.to_send[:sent]
        if len(client.to_send) > _MOST_UNREAD:
            client.to_send.clear()
            self._part(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.to_send else 0)
        if self._selector.get_key(client.channel).events != wanted:
            self._selector.modify(client.channel, wanted, self._selector.get_key(client.channel).data)


def main() -> None:
    """Arguments: descriptors of host, listener and lock; the host's process id; log folder; log size."""
    host_fd, listener_fd, _lock_fd, host_pid, log_folder, log_bytes = sys.argv[1:]
    listener = socket.socket(fileno=int(listener_fd))
    Keeper(
        host=socket.socket(fileno=int(host_fd)),
        host_pid=int(host_pid),
        listener=listener,
        log_folder=Path(log_folder),
        log_bytes=int(log_bytes),
    ).run()
    # Safe because of the lock, which this process holds until it is gone: no other host has bound the path
    # yet.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(listener.getsockname())
