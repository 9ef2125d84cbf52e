"""Nonsense at the ports of a parameter server and of the master, by those who know the token and by those who do not.

After each round a valid client is served, and the process has not grown by more than is allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.master import Master
from elasticdl.master.services.endpoints import Servers as MasterServers
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import master_pb2, ps_pb2
from elasticdl.wire.channel import add_port, open_channel
from elasticdl.wire.frames import MAGIC, connect
from elasticdl.wire.security import NotTrusted
from tests.fuzz.mutations import mutated
from tests.master.conftest import Nowhere
from tests.ps.conftest import TOKEN, Servers

Round = Callable[[random.Random], None]
_GROWTH_BYTES = 1 << 30
_CALL_SECONDS = 20.0
_CLOSED = (OSError, NotTrusted, ValueError)


class _Memory:
    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss

    def check(self) -> None:
        grown = self._process.memory_info().rss - self._before
        assert grown < _GROWTH_BYTES, f"{grown:,} bytes more than at the beginning"


# -- parameter servers ---------------------------------------------------------------------------------------------


def _numbers(source: random.Random) -> int:
    return source.choice((0, 1, 8, 100, 2**16, 2**24, 2**31 - 1, 2**32 - 1))


def _header(source: random.Random) -> bytes:
    size = source.choice((0, 1, 16, 5000, 2**31, 2**33, 2**63, 2**64 - 1))
    return b"".join(
        (
            source.choice((source.randrange(64), _numbers(source), 2**30 - 1, 2**31)).to_bytes(4, "little"),
            _numbers(source).to_bytes(4, "little"),
            size.to_bytes(8, "little"),
        )
    )


def _nonsense(source: random.Random) -> bytes:
    pieces = (
        lambda: _header(source),
        lambda: source.randbytes(source.choice((1, 16, 300))),
        lambda: mutated(_push(), source),
        lambda: _call(source),
        lambda: bytes(64),
    )
    return b"".join(source.choice(pieces)() for _ in range(source.randint(1, 3)))


def _call(source: random.Random) -> bytes:
    """A frame of the right length, so that what is in it is read: of any call, REPLICATE and EXPORT too."""
    head, body = mutated(_push(), source), source.randbytes(source.choice((0, 16, 300)))
    header = (source.randint(call_codec.INITIALIZE, call_codec.EXPORT), len(head), len(body))
    return struct.pack("<IIQ", *header) + head + body


def _push() -> bytes:
    request = ps_pb2.PushRequest(worker="worker-0", sequence=1, generation=1, learning_rate=0.1)
    return request.SerializeToString()


@contextlib.contextmanager
def _server(*, with_token: bool) -> Iterator[Round]:
    servers = Servers(1, ServerSettings())
    try:
        (address,) = servers.addresses
        client = servers.client()
        sgd = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
        client.initialize({"a": np.ones(4, np.float32)}, {}, sgd, [TableSpec(name="t", width=2)])
        memory = _Memory()

        def one_round(source: random.Random) -> None:
            data = _nonsense(source)
            with contextlib.suppress(*_CLOSED):
                if with_token:
                    _with_token(address, data)
                else:
                    _without_token(address, source.choice((b"", MAGIC, MAGIC)) + data)
            assert client.pull().trainable["a"].tolist() == [1.0] * 4
            memory.check()

        yield one_round
    finally:
        servers.close()


def _with_token(address: str, data: bytes) -> None:
    connection = connect(address, TOKEN)
    try:
        connection._socket.sendall(data)
        connection._socket.shutdown(socket.SHUT_WR)
        connection._socket.settimeout(_CALL_SECONDS)
        while connection._socket.recv(1 << 16):
            pass
    finally:
        connection.close()


def _without_token(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_CALL_SECONDS) as opened:
        opened.sendall(data)
        opened.shutdown(socket.SHUT_WR)
        while opened.recv(1 << 16):
            pass


# -- the master ----------------------------------------------------------------------------------------------------

_METHODS = [
    (method.name, method.input_type.name)
    for method in master_pb2.DESCRIPTOR.services_by_name["Master"].methods
    # They wait, or end the job because they were asked to.
    if method.name not in ("Watch", "Lease", "Stop", "Fail", "Scale")
]


def _message(kind: str, source: random.Random) -> bytes:
    message: Any = getattr(master_pb2, kind)()
    for field in message.DESCRIPTOR.fields:
        if field.label == field.LABEL_REPEATED or source.random() < 0.3:
            continue
        if field.type == field.TYPE_STRING:
            setattr(message, field.name, source.choice(("worker-0", "worker-9", "training", "", "x" * 5000)))
        elif field.type in (field.TYPE_INT64, field.TYPE_INT32):
            widest = 63 if field.type == field.TYPE_INT64 else 31
            setattr(message, field.name, source.choice((0, 1, 100, -1, 2**widest - 1, -(2**widest))))
        elif field.type == field.TYPE_DOUBLE:
            setattr(message, field.name, source.choice((0.0, float("nan"), float("inf"), -1e308)))
    data: bytes = message.SerializeToString()
    return mutated(data, source) if source.random() < 0.5 else data


class _ServedMaster:
    """A master with its port, on an event loop in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        spec = JobSpec.build(job_name="fuzz", model_zoo="z", model_def="a.b.c", training_data="d", num_ps=1)
        (folder / "journal").mkdir()
        self.master = Master(spec=spec, folder=folder, platform=Nowhere(), token=TOKEN, environment={})
        self.master.recover()
        self.master.do(JoinNode(node="worker-0", incarnation="i", address="here"))
        self.master.do(AnnounceDataset(dataset="training", size=100))
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        self.servers = MasterServers(self.master, TOKEN)
        self.port = add_port(self.servers.own, "127.0.0.1:0")
        await self.servers.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.servers.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self.master._journal.close()
        self.master._events.close()


@contextlib.contextmanager
def _served_master(*, with_token: bool) -> Iterator[tuple[Master, grpc.Channel, grpc.Channel]]:
    with tempfile.TemporaryDirectory() as folder:
        served = _ServedMaster(Path(folder))
        address = f"127.0.0.1:{served.port}"
        good, bad = open_channel(address, TOKEN), open_channel(address, TOKEN if with_token else "wrong")
        try:
            yield served.master, good, bad
        finally:
            good.close()
            bad.close()
            served.close()


@contextlib.contextmanager
def _master(*, with_token: bool) -> Iterator[Round]:
    memory = _Memory()
    with contextlib.ExitStack() as stack:
        master, good, bad = stack.enter_context(_served_master(with_token=with_token))

        def one_round(source: random.Random) -> None:
            nonlocal master, good, bad
            if master.state.outcome:
                # What a worker of the job says may fail it: another one for the rounds to come.
                stack.close()
                master, good, bad = stack.enter_context(_served_master(with_token=with_token))
            method, kind = source.choice(_METHODS)
            call = bad.unary_unary(
                f"{_SERVICE}/{method}", request_serializer=bytes, response_deserializer=bytes
            )
            try:
                call(_message(kind, source), timeout=_CALL_SECONDS)
                assert with_token, "answered without the token"
            except grpc.RpcError as error:
                code = error.code()
                assert with_token or code is grpc.StatusCode.UNAUTHENTICATED, code
                assert code is not grpc.StatusCode.DEADLINE_EXCEEDED, f"{method} hangs"
                # As gRPC calls an exception of the method, or bytes that are no message.
                if code is grpc.StatusCode.UNKNOWN and "DecodeError" not in str(error):
                    raise AssertionError(f"{method} raised an error of its own") from error
            status = good.unary_unary(
                f"{_SERVICE}/Status", request_serializer=bytes, response_deserializer=bytes
            )
            status(b"", timeout=_CALL_SECONDS)
            memory.check()

        yield one_round


_SERVICE = f"/{master_pb2.DESCRIPTOR.services_by_name['Master'].full_name}"


def _target(make: Callable[..., Any], *, with_token: bool) -> Callable[[], AbstractContextManager[Round]]:
    return lambda: make(with_token=with_token)


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "server": _target(_server, with_token=False),
    "server-token": _target(_server, with_token=True),
    "master": _target(_master, with_token=False),
    "master-token": _target(_master, with_token=True),
}
