"""The connections of replication: send the entries of the outboxes (`replica_log.py`), and apply those of other
servers.

Each outbox has a thread that sends its entries and one that receives acknowledgements. When a connection breaks,
another is opened and everything unacknowledged is sent again; the receiver skips duplicates. Retries go on until a
newer map closes the outbox.
"""

from __future__ import annotations

import logging
import os
import threading

from google.protobuf.message import DecodeError

from elasticdl.errors import UserError
from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY
from elasticdl.ps.core.array_bodies import unpack
from elasticdl.ps.core.server_errors import NotReady, ServerFailure, from_status_number, status_number
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.replica_log import Outbox
from elasticdl.ps.server.store import Store
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import OK, Connection, ConnectionLost, connect
from elasticdl.wire.security import NotTrusted

log = logging.getLogger("elasticdl.ps")

# How often an idle thread checks whether it is to stop.
_IDLE_SECONDS = 0.5
_PAUSE_SECONDS = 0.05
_EXIT_FAULT = 1


class ReplicationStreams:
    """The streams to all other servers with replicas, until closed."""

    def __init__(self, store: Store, token: str) -> None:
        self._store = store
        self._token = token
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._known: list[Outbox] = []
        self._thread = threading.Thread(target=self._watch, name="streams", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.interrupt()
        self._thread.join()

    def _watch(self) -> None:
        threads: list[threading.Thread] = []
        while not self._stopped.is_set():
            outboxes = self._store.peers.wait_for_outboxes(self._known, seconds=_IDLE_SECONDS)
            # The streams of lost servers have ended.
            threads = [thread for thread in threads if thread.is_alive()]
            for outbox in outboxes:
                if outbox not in self._known:
                    thread = threading.Thread(target=self._drain, args=(outbox,), name="stream", daemon=True)
                    threads.append(thread)
                    thread.start()
            self._known = outboxes
        for thread in threads:
            thread.join()

    def _wanted(self, outbox: Outbox) -> bool:
        return not self._stopped.is_set() and self._store.peers.address_of(outbox) is not None

    def _drain(self, outbox: Outbox) -> None:
        """Sends the entries of an outbox until it is closed."""
        while self._wanted(outbox):
            try:
                self._send(outbox)
            except (OSError, NotTrusted, ServerFailure, DecodeError) as error:
                log.info("Retrying replication to server %d: %s", outbox.peer, error)
            except BaseException as error:
                # Otherwise calls would wait for the other replica forever.
                log.critical("Exiting: replication to server %d failed", outbox.peer, exc_info=True)
                os._exit(_exit_code(error))
            self._stopped.wait(_PAUSE_SECONDS)

    def _send(self, outbox: Outbox) -> None:
        address = self._store.peers.address_of(outbox)
        if not address:
            return
        connection = connect(address, self._token, waiting=lambda: self._check(outbox))
        with self._lock:
            self._connections.add(connection)
        hearing: threading.Thread | None = None
        try:
            position = self._handshake(connection, outbox)
            connection.share()
            self._store.peers.acknowledge(outbox, position)
            broken = threading.Event()
            hearing = threading.Thread(
                target=self._receive_acks, args=(connection, outbox, broken), name="stream-acks", daemon=True
            )
            hearing.start()
            while not broken.is_set() and self._wanted(outbox):
                found = self._store.peers.next_entry(outbox, position, seconds=_IDLE_SECONDS)
                if found is not None:
                    position, entry, body = found
                    connection.send(call_codec.ENTRY, entry, body, ticket=position)
        finally:
            connection.interrupt()
            if hearing is not None:
                hearing.join()
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _handshake(self, connection: Connection, outbox: Outbox) -> int:
        hello = ps_pb2.ReplicateHello(
            server=self._store.number, incarnation=self._store.incarnation, generation=self._store.generation
        )
        connection.send(call_codec.REPLICATE, hello.SerializeToString())
        answer = connection.receive()
        if answer.kind != OK:
            raise from_status_number(answer.kind, answer.head.decode())
        welcome = ps_pb2.ReplicateWelcome.FromString(answer.head)
        if outbox.incarnation and welcome.incarnation != outbox.incarnation:
            raise ConnectionLost("another process has come in its place")
        return welcome.position

    def _receive_acks(self, connection: Connection, outbox: Outbox, broken: threading.Event) -> None:
        try:
            while True:
                frame = connection.receive()
                if frame.kind != OK:
                    log.info("Replication rejected by server %d: %s", outbox.peer, frame.head.decode())
                    return
                position = ps_pb2.ReplicateWelcome.FromString(frame.head).position
                connection.release(position)
                self._store.peers.acknowledge(outbox, position)
        except (OSError, DecodeError):
            return
        finally:
            broken.set()
            self._store.peers.wake()

    def _check(self, outbox: Outbox) -> None:
        if not self._wanted(outbox):
            raise ConnectionLost("the outbox is closed")


def serve_replication(connection: Connection, store: Store, hello: ps_pb2.ReplicateHello) -> None:
    """The receiving end: applies the entries of a primary until the connection ends.

    An error of a user-defined optimizer ends this server: the store has reported it, and the sender gets `NotReady`.
    """
    try:
        position = store.peers.received(hello.server, hello.incarnation, hello.generation)
    except (ServerFailure, UserError) as error:
        _refuse(connection, hello, error)
        return
    welcome = ps_pb2.ReplicateWelcome(incarnation=store.incarnation, position=position)
    connection.send(OK, welcome.SerializeToString())
    while True:
        try:
            frame = connection.receive()
        except ConnectionLost:
            return
        try:
            entry = ps_pb2.Entry.FromString(frame.head)
            mask, apply = unpack(entry.buckets), call_codec.decode_entry(entry, frame.body)
        except (ValueError, KeyError, TypeError, RecursionError, DecodeError, UserError) as error:
            # No server sends such an entry: nothing is missing here, and nothing is invalid.
            log.warning("Rejecting a malformed entry of server %d: %s", hello.server, error)
            connection.send(status_number(ValueError()), str(error).encode())
            return
        try:
            store.peers.receive(hello.server, hello.incarnation, hello.generation, entry, mask, apply)
        except (ServerFailure, UserError) as error:
            _refuse(connection, hello, error)
            return
        except BaseException as error:
            # The sender has applied it without an error. A replica that cannot follow is invalid: this process exits,
            # and its replacement gets a copy.
            log.critical("Exiting: cannot apply an entry of server %d", hello.server, exc_info=True)
            os._exit(_exit_code(error))
        connection.send(OK, ps_pb2.ReplicateWelcome(position=entry.position).SerializeToString())


def _exit_code(error: BaseException) -> int:
    """Returns the exit code: after one for out of memory, the node may be restarted with more."""
    return EXIT_OUT_OF_MEMORY if isinstance(error, MemoryError) else _EXIT_FAULT


def _refuse(connection: Connection, hello: ps_pb2.ReplicateHello, error: ServerFailure | UserError) -> None:
    if isinstance(error, UserError):
        error = NotReady("this server is stopping")
    else:
        log.info("Rejecting replication of server %d: %s", hello.server, error)
    connection.send(status_number(error), str(error).encode())
