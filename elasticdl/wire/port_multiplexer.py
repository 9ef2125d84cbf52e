"""A port of a server that speaks two protocols: frames for large messages, gRPC for small ones.

The first bytes of a connection name its protocol. Those without the magic bytes of frames are relayed to gRPC's own
port, which only this machine can reach: such calls are few and small. A single port is enough for an address, for a
service of Kubernetes and for a firewall rule.

One thread with non-blocking sockets accepts, reads up to the token, and relays. Only a connection of frames that has
shown the token gets a thread of its own. So a caller without it costs a descriptor, for a few seconds, and no thread.

Failure modes
    Connections without the token: each is closed after `opening_seconds`, and the oldest when there are more than
    `max_openings` at a time. A relayed one counts as such until gRPC has seen the token in one of its calls (`admit`).
    No descriptor or thread is left: the connection is closed, and the loop continues. After `sick_seconds` without
    a success the port is unhealthy (`unhealthy`), which the server reports to its master, which replaces it. An
    unexpected error closes the connection that caused it.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elasticdl.wire.frames import MAGIC, Connection, HelloReader, admit, hang_up, refuse
from elasticdl.wire.security import Security

log = logging.getLogger("elasticdl.wire")

# Without a descriptor left for the next connection, there is one as soon as another has ended.
_PAUSE_SECONDS = 0.1
# How often deadlines are checked.
_TICK_SECONDS = 0.5
_PIECE = 1 << 16
# Connections that are accepted before the others are served again.
_ACCEPTS_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a port."""

    # For everything up to the token. A handshake takes milliseconds, on a busy machine a second.
    opening_seconds: float = 10.0
    # Connections that have not shown the token. A worker opens a handful at a time.
    max_openings: int = 512
    # Connections of frames, a thread each: a few for each of a thousand workers.
    max_connections: int = 8192
    # Connections of gRPC: the master has one, a command a second one for a moment.
    max_relays: int = 256
    # So long nothing could be accepted: the master replaces such a server.
    sick_seconds: float = 20.0


class Front:
    """Listens at once; answers from `serve` on."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str,
        security: Security | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `OSError` if the port is taken."""
        security = security or Security.of_environment()
        self._token = token
        self._limits = limits or Limits()
        self._clock = clock
        self._context = security.server_context() if security is not None else None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=1024)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._waker = socket.socketpair()
        # Used by the loop's own thread. Both are in order of age.
        self._openings: dict[_Opening, None] = {}
        self._relays: dict[int, _Relay] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._stopped = threading.Event()
        self._loop: threading.Thread | None = None
        self._failing_since: float | None = None
        self._failed_at = 0.0
        self._accept_again_at: float | None = None

    def serve(self, answer: Callable[[Connection], None], behind: int) -> None:
        """Has `answer` called with each connection that brings frames; others are relayed to that local port."""
        self._answer = answer
        self._behind = behind
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._woken)
        self._loop = threading.Thread(target=self._run_loop, name="front", daemon=True)
        self._loop.start()

    def stop(self) -> None:
        """Ends all connections and waits until the threads have ended. A second call does nothing more."""
        with self._lock:
            self._stopped.set()
            opened = list(self._open)
            threads = list(self._threads)
        # The loop may have seen the flag already, and closed this.
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        for one in opened:
            hang_up(one)
        for thread in (self._loop, *threads):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        if self._loop is None:
            self._close_all()

    def admit(self, peer: str) -> None:
        """A call with the token has come from this peer, as gRPC names it: its connection is kept."""
        with contextlib.suppress(ValueError):
            relay = self._relays.get(int(peer.rpartition(":")[2]))
            if relay is not None:
                relay.is_admitted = True

    def unhealthy(self) -> str:
        """Why nothing can be accepted; empty if there is no such reason."""
        if self._loop is not None and not self._loop.is_alive() and not self._stopped.is_set():
            return "the thread that accepts connections has ended"
        since = self._failing_since
        if since is not None and self._failed_at - since >= self._limits.sick_seconds:
            return f"no connection could be accepted for {self._failed_at - since:.0f} s"
        return ""

    @property
    def connections(self) -> int:
        """Returns the number of connections that have shown the token."""
        with self._lock:
            return len(self._threads)

    # -- the loop ------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._turn()
                except Exception:
                    # After any error the port must continue to answer.
                    log.exception("Error in the loop that accepts connections; continuing")
                    self._note_failure()
                    self._stopped.wait(_PAUSE_SECONDS)
        finally:
            self._close_all()

    def _turn(self) -> None:
        for key, events in self._selector.select(_TICK_SECONDS):
            handler: Callable[[int], None] = key.data
            handler(events)
        now = self._clock()
        for opening in self._overdue(now):
            opening.close("the token does not come")
        for relay in [r for r in self._relays.values() if not r.is_admitted and now >= r.deadline]:
            relay.close()
        if self._accept_again_at is not None and now >= self._accept_again_at:
            self._accept_again_at = None
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)

    def _overdue(self, now: float) -> list[_Opening]:
        found = []
        for opening in self._openings:
            if now < opening.deadline:
                break
            found.append(opening)
        return found

    def _woken(self, events: int) -> None:
        self._wake_reader.recv(64)

    def _accept(self, events: int) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                opened, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No descriptor is left. Waiting for the next connection would be a busy loop.
                self._note_failure()
                self._selector.unregister(self._listening)
                self._accept_again_at = self._clock() + _PAUSE_SECONDS
                self._make_room()
                return
            try:
                self._meet(opened)
            except BaseException:
                opened.close()
                raise
            self._note_success()

    def _note_failure(self) -> None:
        self._failed_at = self._clock()
        if self._failing_since is None:
            self._failing_since = self._failed_at
            # Once: while there are too many it is so with every attempt.
            log.exception("A connection could not be accepted.")

    def _note_success(self) -> None:
        self._failing_since = None

    def _meet(self, opened: socket.socket) -> None:
        while self._unauthenticated() >= self._max_openings():
            if not self._make_room():
                break
        opened.setblocking(False)
        # There is nothing to look at before so much has come: both protocols begin with more.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(MAGIC))
        opening = _Opening(self, opened, self._clock() + self._limits.opening_seconds)
        self._openings[opening] = None
        self._selector.register(opened, selectors.EVENT_READ, opening.go_on)

    def _unauthenticated(self) -> int:
        return len(self._openings) + sum(not relay.is_admitted for relay in self._relays.values())

    def _max_openings(self) -> int:
        """Never so many that none of the process's descriptors is left."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # A relayed one takes two.
        return self._limits.max_openings if limit < 0 else max(1, min(self._limits.max_openings, limit // 8))

    def _make_room(self) -> bool:
        """Closes the oldest connection that has not shown the token."""
        relay = next((each for each in self._relays.values() if not each.is_admitted), None)
        opening = next(iter(self._openings), None)
        if relay is not None and (opening is None or relay.deadline <= opening.deadline):
            relay.close()
            return True
        if opening is not None:
            opening.close("there are too many connections without the token")
            return True
        return False

    def _close_all(self) -> None:
        for opening in list(self._openings):
            opening.close("the server ends")
        for relay in list(self._relays.values()):
            relay.close()
        for each in (self._listening, self._wake_reader, self._waker):
            each.close()
        self._selector.close()

    # -- connections that have shown the token ---------------------------------------------------------------

    def _start_call(self, opened: socket.socket) -> None:
        thread = threading.Thread(target=self._call, args=(opened,), name="call", daemon=True)
        with self._lock:
            full = len(self._threads) >= self._limits.max_connections
            if self._stopped.is_set() or full:
                opened.close()
                return
            self._open.add(opened)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system, or the container, has no thread for us. The caller tries again.
            with self._lock:
                self._open.discard(opened)
                self._threads.discard(thread)
            opened.close()
            self._note_failure()

    def _call(self, opened: socket.socket) -> None:
        try:
            self._answer(admit(opened))
        except (OSError, EOFError) as error:
            log.debug("A connection has ended: %s", error)
        finally:
            with self._lock:
                self._open.discard(opened)
                self._threads.discard(threading.current_thread())
            opened.close()

    # -- relays ------------------------------------------------------------------------------------------------

    def _relay(self, opened: socket.socket, deadline: float) -> None:
        if sum(relay.is_admitted for relay in self._relays.values()) >= self._limits.max_relays:
            opened.close()
            return
        behind = socket.socket(socket.AF_INET)
        try:
            for one in (opened, behind):
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # gRPC knows the connection by this port. It cannot be found out before it is bound.
            behind.bind(("127.0.0.1", 0))
            behind.connect_ex(("127.0.0.1", self._behind))
            relay = _Relay(self, opened, behind, deadline)
        except BaseException:
            behind.close()
            opened.close()
            raise
        self._relays[relay.port] = relay
        relay.update()


class _Opening:
    """A connection up to the token: the first bytes, the TLS handshake, the hello. In the loop's thread."""

    def __init__(self, front: Front, opened: socket.socket, deadline: float) -> None:
        self.deadline = deadline
        self._front = front
        self._socket = opened
        self._steps = self._open()

    def go_on(self, events: int) -> None:
        try:
            wanted = next(self._steps)
        except StopIteration:
            return
        except (OSError, ValueError) as error:
            self.close(str(error))
        except BaseException:
            self.close("an error")
            raise
        else:
            self._front._selector.modify(self._socket, wanted, self.go_on)

    def close(self, reason: str) -> None:
        log.debug("Refusing a connection: %s", reason)
        self._detach()
        self._socket.close()

    def _detach(self) -> None:
        self._front._openings.pop(self, None)
        with contextlib.suppress(KeyError, ValueError):
            self._front._selector.unregister(self._socket)

    def _open(self) -> Iterator[int]:
        """Yields what to wait for."""
        # Peeked at, so that gRPC gets it all.
        begin = self._socket.recv(len(MAGIC), socket.MSG_PEEK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        if len(begin) < len(MAGIC):
            self.close("it ended before it said anything")
            return
        if begin != MAGIC:
            self._detach()
            self._front._relay(self._socket, self.deadline)
            return
        self._socket.recv(len(MAGIC))
        if self._front._context is not None:
            yield from self._encrypt(self._front._context)
        hello = HelloReader()
        while not hello.complete:
            try:
                hello.read(self._socket)
            except (ssl.SSLWantReadError, BlockingIOError):
                yield selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                yield selectors.EVENT_WRITE
        if not hello.shows(self._front._token):
            refuse(self._socket)
            self.close("it has another token")
            return
        self._detach()
        self._front._start_call(self._socket)

    def _encrypt(self, context: ssl.SSLContext) -> Iterator[int]:
        plain = self._socket
        self._front._selector.unregister(plain)
        encrypted = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self._socket = encrypted
        self._front._selector.register(encrypted, selectors.EVENT_READ, self.go_on)
        while True:
            try:
                encrypted.do_handshake()
                return
            except ssl.SSLWantReadError:
                yield selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                yield selectors.EVENT_WRITE


class _Relay:
    """Two connections, of which each gets what comes from the other. In the loop's thread."""

    def __init__(self, front: Front, outside: socket.socket, inside: socket.socket, deadline: float) -> None:
        self.deadline = deadline
        # Set by another thread.
        self.is_admitted = False
        self.port: int = inside.getsockname()[1]
        self._front = front
        self._sockets = (outside, inside)
        # Bytes that still have to be sent to each side. Nothing is received from the other one meanwhile.
        self._pending = [b"", b""]

    def update(self) -> None:
        for side, one in enumerate(self._sockets):
            wanted = 0 if self._pending[1 - side] else selectors.EVENT_READ
            wanted |= selectors.EVENT_WRITE if self._pending[side] else 0
            self._watch(side, one, wanted)

    def _watch(self, side: int, one: socket.socket, wanted: int) -> None:
        selector = self._front._selector
        known = selector.get_map().get(one)
        if known is None:
            if wanted:
                selector.register(one, wanted, lambda events, side=side: self._ready(side, events))
        elif not wanted:
            selector.unregister(one)
        elif known.events != wanted:
            selector.modify(one, wanted, known.data)

    def _ready(self, side: int, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and self._pending[side]:
                self._pending[side] = self._pending[side][self._sockets[side].send(self._pending[side]) :]
            if events & selectors.EVENT_READ and not self._pending[1 - side]:
                piece = self._sockets[side].recv(_PIECE)
                if not piece:
                    self.close()
                    return
                self._pending[1 - side] = piece
                self._flush(1 - side)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        self.update()

    def _flush(self, side: int) -> None:
        """Sends at once, since there is nearly always room."""
        with contextlib.suppress(BlockingIOError):
            self._pending[side] = self._pending[side][self._sockets[side].send(self._pending[side]) :]

    def close(self) -> None:
        self._front._relays.pop(self.port, None)
        for one in self._sockets:
            with contextlib.suppress(KeyError, ValueError):
                self._front._selector.unregister(one)
            one.close()
