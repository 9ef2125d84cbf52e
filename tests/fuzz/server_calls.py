"""Well-formed calls to a parameter server, by workers and by other servers, with something wrong in them.

The callers know the token, and a server's caller the name of the primary, so what they send gets as deep as any. What
may come of it: an error, a connection that is closed, a model with other values. What may not: a server that does not
answer, memory that a message merely claims, an end of the process. A replica whose own values differ from its primary's
ends by design (`ReplicaDiverged`), and for no other reason.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import grpc

from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap
from elasticdl.ps.core.server_errors import ReplicaDiverged
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import OK, connect
from tests.fuzz.callers import CALL_SECONDS, Memory
from tests.fuzz.server_messages import CALLS, Entries, initialize, pull, pull_rows, push
from tests.ps.conftest import TOKEN

Round = Callable[[random.Random], None]
# A server that has taken nonsense for values gives way to a new one.
_ROUNDS = 50
_HALF = BUCKETS // 2
_INTERNAL: int = grpc.StatusCode.INTERNAL.value[0]


class _Exits:
    """Notes the end of the process instead of ending it, and of threads: the thread ends."""

    def __init__(self) -> None:
        self.reasons: list[BaseException | None] = []

    def __call__(self, status: int) -> None:
        self.reasons.append(sys.exc_info()[1])
        raise SystemExit(status)

    def note_thread(self, ended: threading.ExceptHookArgs) -> None:
        if not isinstance(ended.exc_value, SystemExit):
            self.reasons.append(ended.exc_value)

    def check(self) -> None:
        reasons, self.reasons = self.reasons, []
        # By design: it is replaced by a copy of its primary.
        for reason in reasons:
            if isinstance(reason, ReplicaDiverged):
                continue
            raise AssertionError(f"the process or a thread would end: {reason!r}") from reason


class _Server:
    """Server 1 of two, which backs up the buckets of server 0, in the place of which nonsense is sent."""

    def __init__(self) -> None:
        self.store = Store(ServerSettings(), number=1)
        self.server = ParameterServer(token=TOKEN)
        self.store.close(1)
        # Server 1 replicates nothing: a push would wait for an answer that never comes.
        places = BucketMap(
            version=1, primary=(0,) * _HALF + (1,) * _HALF, backup=(1,) * _HALF + (NO_SERVER,) * _HALF
        )
        self.store.peers.update_routes(Routes(map=places))
        self.store.open()
        self.server.serve(self.store)
        self.entries = Entries()
        sent = initialize(random.Random(1))
        model = call_codec.read_initialize(sent.head, memoryview(sent.body))
        self.store.workers.initialize(model, generation=1)

    def check(self) -> None:
        """Neither locks nor values are left in a state in which calls fail."""
        assert self.store.master.has_time(CALL_SECONDS), "the store is locked"
        self.store.master.status()
        for sent in (pull(random.Random(2)), pull_rows(random.Random(2)), push(random.Random(2))):
            sent.head.generation = 1
            _exchange(self.server.address, sent.kind, [(sent.head.SerializeToString(), sent.body)])


def _exchange(address: str, kind: int, frames: list[tuple[bytes, bytes]], *, hello: bytes = b"") -> None:
    """Sends frames and reads the answer to each, as long as there are answers."""
    connection = connect(address, TOKEN)
    connection._socket.settimeout(CALL_SECONDS)
    try:
        if kind == call_codec.ENTRY:
            connection.send(call_codec.REPLICATE, hello)
            if connection.receive().kind != OK:
                return
        for head, body in frames:
            connection.send(kind, head, [memoryview(body)] if body else [])
            answer = connection.receive()
            assert answer.kind != _INTERNAL, f"a fault of the server: {answer.head.decode()}"
    except BlockingIOError as error:
        raise AssertionError("the server does not answer") from error
    except OSError:
        # It has closed the connection.
        return
    finally:
        connection.close()


@contextlib.contextmanager
def _calls(send: Callable[[_Server, random.Random], None]) -> Iterator[Round]:
    exits = _Exits()
    with (
        mock.patch.object(os, "_exit", exits),
        mock.patch.object(threading, "excepthook", exits.note_thread),
        contextlib.ExitStack() as stack,
    ):
        memory = Memory()
        server, rounds = None, 0

        def one_round(source: random.Random) -> None:
            nonlocal server, rounds
            if server is None:
                server, rounds = _Server(), 0
                stack.callback(server.server.stop)
            rounds += 1
            try:
                send(server, source)
                server.check()
                exits.check()
                memory.check()
            except BaseException:
                rounds = _ROUNDS
                exits.reasons.clear()
                raise
            finally:
                if rounds >= _ROUNDS:
                    stack.close()
                    server = None

        yield one_round


def _call(server: _Server, source: random.Random) -> None:
    message = source.choice(CALLS)(source)
    _exchange(server.server.address, message.kind, [message.damaged(source)])


def _replicate(server: _Server, source: random.Random) -> None:
    hello = ps_pb2.ReplicateHello(server=0, incarnation="i", generation=1).SerializeToString()
    frames = [
        server.entries.next(source, version=source.choice((1, 1, 1, 2)), buckets=range(_HALF)).damaged(source)
        for _ in range(source.randint(1, 3))
    ]
    _exchange(server.server.address, call_codec.ENTRY, frames, hello=hello)


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "server-calls": lambda: _calls(_call),
    "replication": lambda: _calls(_replicate),
}
