"""The one port of a server that speaks two protocols: frames for what is large, gRPC for what is small.

What a connection begins with tells which it is. Frames are answered here, in a thread for each connection. Everything
else is passed on, byte by byte, to gRPC's own port, which only this machine can reach: those calls are few and small.
One port is what an address can say, what a service of Kubernetes forwards, and what has to be opened in a firewall.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from elasticdl.wire.frames import MAGIC, Connection, hang_up, welcome
from elasticdl.wire.security import Security

log = logging.getLogger("elasticdl.wire")

# Those who connect and do not say who they are, are not waited for: for everything up to the token.
_OPENING_SECONDS = 10.0
# Without a descriptor left for the next connection, there is one as soon as another has ended.
_PAUSE_SECONDS = 0.1
_PIECE = 1 << 16


class Front:
    """Listens at once; answers from `serve` on."""

    def __init__(self, host: str, port: int, *, token: str, security: Security | None = None) -> None:
        """Raises `OSError` if the port is taken."""
        security = security or Security.of_environment()
        self._token = token
        self._context = security.server_context() if security is not None else None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._stopped = threading.Event()

    def serve(self, answer: Callable[[Connection], None], behind: int) -> None:
        """Has `answer` called with each connection that brings frames; others are passed on to that local port."""
        self._answer = answer
        self._behind = behind
        threading.Thread(target=self._accept, name="front", daemon=True).start()

    def stop(self) -> None:
        """Ends all connections, and waits until nobody answers any more."""
        with self._lock:
            self._stopped.set()
            opened = list(self._open)
            threads = list(self._threads)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in opened:
            hang_up(one)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _accept(self) -> None:
        told = False
        while not self._stopped.is_set():
            try:
                opened, _ = self._listening.accept()
            except OSError:
                # Once: as long as there are too many it is so with every attempt.
                if not told and not self._stopped.is_set():
                    log.exception("A connection could not be accepted.")
                told = True
                self._stopped.wait(_PAUSE_SECONDS)
                continue
            told = False
            self._start(self._meet, opened)

    def _start(self, target: Callable[..., None], opened: socket.socket, *others: socket.socket) -> None:
        thread = threading.Thread(target=self._run, args=(target, opened, *others), name="call", daemon=True)
        with self._lock:
            if self._stopped.is_set():
                opened.close()
                return
            self._open.add(opened)
            self._threads.add(thread)
        thread.start()

    def _run(self, target: Callable[..., None], opened: socket.socket, *others: socket.socket) -> None:
        try:
            target(opened, *others)
        except (OSError, EOFError) as error:
            log.debug("A connection has ended: %s", error)
        finally:
            with self._lock:
                self._open.discard(opened)
                self._threads.discard(threading.current_thread())
            opened.close()

    def _meet(self, opened: socket.socket) -> None:
        until = time.monotonic() + _OPENING_SECONDS
        opened.settimeout(_OPENING_SECONDS)
        # There is nothing to look at before so much has come: both protocols begin with more.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(MAGIC))
        # Peeked at, so that gRPC gets it all.
        begin = opened.recv(len(MAGIC), socket.MSG_PEEK)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        if begin != MAGIC:
            self._pass_on(opened)
            return
        opened.recv(len(MAGIC))
        if self._context is not None:
            plain, opened = (
                opened,
                self._context.wrap_socket(opened, server_side=True, do_handshake_on_connect=False),
            )
            with self._lock:
                self._open.discard(plain)
                self._open.add(opened)
        try:
            if isinstance(opened, ssl.SSLSocket):
                # The handshake has to be over by then, not only go on.
                opened.settimeout(max(until - time.monotonic(), 0.001))
                opened.do_handshake()
            connection = welcome(opened, self._token, until=until)
            if connection is not None:
                self._answer(connection)
        finally:
            with self._lock:
                self._open.discard(opened)
            opened.close()

    def _pass_on(self, opened: socket.socket) -> None:
        behind = socket.create_connection(("127.0.0.1", self._behind))
        for one in (opened, behind):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start(self._pump, behind, opened)
        self._pump(opened, behind)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(_PIECE):
                target.sendall(piece)
        finally:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
