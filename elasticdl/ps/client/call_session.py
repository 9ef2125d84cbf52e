"""Calls of a worker to the servers of its buckets: to all at once, repeated until all have answered.

A call is for some buckets. By the newest map, each server receives the part for the buckets that it is the primary of.
Parts that no server took, or that a server rejects as not its own, are sent again after a backoff, by the map of then.
Repeating is idempotent: a push carries a sequence number, and buckets that have applied it ignore it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
import numpy as np

from elasticdl.backoff import Backoff
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import CallStopped, ServerFailure, ServersUnreachable, from_status_number
from elasticdl.ps.protocol.call_codec import NAMES
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire.frames import OK, Connection, ConnectionLost, Frame, connect
from elasticdl.wire.security import NotTrusted

# A server that is being restored says so at once, and a bucket that is being handed over is so for milliseconds. They
# are asked again with backoff.
_BACKOFF = Backoff(initial_seconds=0.005, max_seconds=0.5)
# The longest delay of `stop`.
_STOP_SECONDS = 0.1
_UNAVAILABLE: int = grpc.StatusCode.UNAVAILABLE.value[0]
_INTERNAL: int = grpc.StatusCode.INTERNAL.value[0]


class OutgoingCall(NamedTuple):
    """A call to a server, and the destination of its reply: memory of the caller, or a buffer that is kept, or one that
    is reused.
    """

    head: bytes
    body: Sequence[memoryview] = ()
    into: Sequence[memoryview] | None = None
    keep: bool = False


class CallPolicy:
    """The policy of all sessions of a worker: servers, retries and timeouts."""

    def __init__(
        self,
        routes: Callable[[], Routes],
        token: str,
        *,
        stop: Callable[[], bool],
        patience_seconds: float | None,
    ) -> None:
        self.routes = routes
        self.token = token
        self._stop = stop
        self._patience = patience_seconds

    def check(self, kind: int, begun: float, servers: Sequence[int]) -> None:
        """Raises if the caller has waited long enough, or has something better to do."""
        if self._stop():
            raise CallStopped(f"{NAMES[kind]} was given up")
        if self._patience is not None and time.monotonic() - begun > self._patience:
            addresses = self.routes().addresses
            places = ", ".join(addresses.get(server, f"server {server}") for server in servers)
            raise ServersUnreachable(
                f"no answer from the parameter servers for {self._patience:g} seconds: {places}"
            )


class CallSession:
    """A connection to each server, for one call at a time."""

    def __init__(self, caller: CallPolicy) -> None:
        self._caller = caller
        self._connections: dict[int, tuple[str, Connection]] = {}
        self._pausing = threading.Event()
        self._kind = 0

    def close(self) -> None:
        for server in list(self._connections):
            self._drop(server)

    def call(
        self,
        kind: int,
        buckets: Mask,
        prepare: Callable[[Routes, int, Mask], OutgoingCall],
        accept: Callable[[int, Mask, Frame], Mask],
    ) -> None:
        """Sends a call for some buckets to the servers that own them, until all are done.

        `prepare` makes what a server is sent for some of them; `accept` takes its answer, and returns those of them
        that it did not take care of.
        """
        self._kind = kind
        begun = time.monotonic()
        attempts = 1
        pending = buckets.copy()
        while True:
            routes = self._caller.routes()
            pending = self._round(kind, routes, pending, prepare, accept, begun)
            if not pending.any():
                return
            newer = self._wait(routes.map.version, _BACKOFF.delay(attempts), begun, pending)
            attempts = 1 if newer else attempts + 1

    def _round(
        self,
        kind: int,
        routes: Routes,
        pending: Mask,
        prepare: Callable[[Routes, int, Mask], OutgoingCall],
        accept: Callable[[int, Mask, Frame], Mask],
        begun: float,
    ) -> Mask:
        """Calls every server once; returns the calls that are left."""
        owners = routes.map.owners
        left = pending.copy()
        asked: dict[int, tuple[Connection, Mask, OutgoingCall]] = {}
        try:
            for server in routes.map.asked:
                mask = pending & (owners == server)
                if not mask.any():
                    continue
                outgoing = prepare(routes, server, mask)
                try:
                    connection = self._connection(routes, server, begun)
                    asked[server] = (connection, mask, outgoing)
                    connection.send(kind, outgoing.head, outgoing.body)
                except OSError:
                    asked.pop(server, None)
                    self._drop(server)
            for server in list(asked):
                connection, mask, outgoing = asked[server]
                try:
                    frame = connection.receive(keep=outgoing.keep, into=outgoing.into)
                except OSError:
                    self._drop(server)
                    del asked[server]
                    continue
                del asked[server]
                if frame.kind == OK:
                    left &= ~mask | accept(server, mask, frame)
                elif frame.kind != _UNAVAILABLE:
                    if frame.kind == _INTERNAL:
                        # After a fault of its own a server ends the connection.
                        self._drop(server)
                    raise from_status_number(frame.kind, frame.head.decode())
        finally:
            # Answers that are not read any more.
            for server in asked:
                self._drop(server)
        return left

    def _connection(self, routes: Routes, server: int, begun: float) -> Connection:
        address = routes.addresses.get(server)
        if address is None:
            raise ConnectionLost(f"the address of server {server} is unknown")
        known = self._connections.get(server)
        if known is not None and known[0] == address:
            connection = known[1]
        else:
            self._drop(server)
            try:
                connection = connect(
                    address,
                    self._caller.token,
                    waiting=self._waiting(routes, server, begun),
                    shares=True,
                )
            except NotTrusted as error:
                raise ServerFailure(str(error)) from error
            self._connections[server] = (address, connection)
        connection.waiting = self._waiting(routes, server, begun)
        return connection

    def _waiting(self, routes: Routes, server: int, begun: float) -> Callable[[], None]:
        def check() -> None:
            self._caller.check(self._kind, begun, [server])
            newest = self._caller.routes()
            if newest.map.version != routes.map.version and _given_up(newest, routes, server):
                raise ConnectionLost(f"server {server} is not waited for any more")

        return check

    def _wait(self, version: int, pause: float, begun: float, pending: Mask) -> bool:
        """A pause, which a newer map ends. Returns whether it did."""
        end = time.monotonic() + pause
        while True:
            newest = self._caller.routes()
            self._caller.check(self._kind, begun, np.unique(newest.map.owners[pending]).tolist())
            if newest.map.version != version:
                return True
            rest = end - time.monotonic()
            if rest <= 0:
                return False
            self._pausing.wait(min(rest, _STOP_SECONDS))

    def _drop(self, server: int) -> None:
        known = self._connections.pop(server, None)
        if known is not None:
            known[1].close()


def _given_up(newest: Routes, routes: Routes, server: int) -> bool:
    """Whether buckets that were a server's are not any more, or it is elsewhere."""
    return newest.addresses.get(server) != routes.addresses.get(server) or any(
        before == server != after
        for before, after in zip(routes.map.primary, newest.map.primary, strict=True)
    )


def everything() -> Mask:
    return np.ones(BUCKETS, np.bool_)
