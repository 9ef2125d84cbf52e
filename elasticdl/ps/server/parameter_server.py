"""A store behind a port: frames for workers and other servers, gRPC for the master.

Frames because rows and gradients are large and many: measured for the rows of a batch, gRPC takes three times the
processor time of plain sockets. A thread for each connection: kernels, copies and sockets all let the interpreter go,
so threads do use the processors, and a worker has few connections. A connection's memory is used again for each call.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE
from elasticdl.ps.core.array_bodies import numbers, pack, unpack
from elasticdl.ps.core.bucket_versions import to_wire
from elasticdl.ps.core.server_errors import NotReady, ServerFailure, status_code, status_number
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.table import TRANSFER
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.protocol.results import PullResult
from elasticdl.ps.server.replication_streams import ReplicationStreams, serve_replication
from elasticdl.ps.server.save_queue import SaveQueue
from elasticdl.ps.server.store import Store
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import add_port, new_server
from elasticdl.wire.frames import OK, Connection, ConnectionLost, Frame
from elasticdl.wire.port_multiplexer import Front
from elasticdl.wire.shared_bodies import copy

log = logging.getLogger("elasticdl.ps")

# Concurrent calls of the master, and those of them that may wait for other servers. A server that hangs must not use up
# the threads of this one, which has to answer status calls.
_THREADS = 16
_WAITING = 8
# A map arrives within milliseconds. A call that waits for one uses one of those threads.
_MAP_SECONDS = 1.0
# Restoring rows may take minutes. A status call gets an empty reply meanwhile.
_BUSY_SECONDS = 2.0

_INTERNAL: int = grpc.StatusCode.INTERNAL.value[0]
SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].full_name

_Answer = tuple[Message, Sequence[memoryview]]


class ParameterServer:
    """A port, taken at once, and calls to it, answered from `serve` on."""

    def __init__(
        self, *, token: str, host: str = "127.0.0.1", port: int = 0, advertise: str | None = None
    ) -> None:
        """`advertise`: the address for others, if it is not the one it listens at."""
        self._token = token
        wrapped = f"[{host}]" if ":" in host else host
        try:
            self._front = Front(host, port, token=token)
        except OSError as error:
            raise UserError(
                f"The parameter server cannot listen at {wrapped}:{port}: {error.strerror or error}."
            ) from error
        self._server = new_server(token, threads=_THREADS, admitted=self._front.admit)
        self._behind = add_port(self._server, "127.0.0.1:0")
        self._store: Store | None = None
        self._streams: ReplicationStreams | None = None
        self.address = advertise or f"{wrapped}:{self._front.port}"

    def serve(self, store: Store) -> None:
        self._server.add_generic_rpc_handlers((_handlers(_Service(store, self._front.unhealthy)),))
        self._server.start()
        self._store = store
        self._streams = ReplicationStreams(store, self._token)
        self._front.serve(lambda connection: _serve(connection, store), self._behind)

    def stop(self, grace_seconds: float | None = None) -> None:
        """Takes no more calls, and waits for those under way."""
        if self._store is not None:
            self._store.stop()
        if self._streams is not None:
            self._streams.close()
        self._server.stop(grace_seconds).wait()
        self._front.stop()


def _serve(connection: Connection, store: Store) -> None:
    """Answers the calls of one connection until it ends."""
    calls = _Calls(store, connection)
    while True:
        try:
            frame = connection.receive()
        except ConnectionLost:
            return
        try:
            if frame.kind == call_codec.REPLICATE:
                hello = ps_pb2.ReplicateHello.FromString(frame.head)
                break
            head, body = calls.answer(frame)
        except (ServerFailure, UserError, ValueError, DecodeError) as error:
            # It may have been replicated before it failed: the message may be in use.
            connection.keep_body()
            connection.send(status_number(error), str(error).encode())
            continue
        except Exception as error:
            # A bug: the caller gets an error, and does not retry forever. The message may be in use, too.
            connection.keep_body()
            connection.send(_INTERNAL, f"a fault of the parameter server: {error!r}".encode())
            raise
        if calls.in_use:
            connection.keep_body()
        connection.send(OK, head.SerializeToString(), body)
    serve_replication(connection, store, hello)


class _Calls:
    """The calls of one connection: one at a time, their answers in memory that is used again."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        # Whether the last call's own memory must stay as it is.
        self.in_use = False
        # A connection is one thread's.
        calls = store.state.statistics.of_thread().calls
        self._took = {
            call_codec.PULL: calls["pull"],
            call_codec.PULL_ROWS: calls["pull_rows"],
            call_codec.PUSH: calls["push"],
        }

    def answer(self, frame: Frame) -> _Answer:
        self.in_use = False
        method = _METHODS.get(frame.kind)
        if method is None:
            raise ValueError(f"there is no method {frame.kind}")
        begun = time.perf_counter_ns()
        answer = method(self, frame.head, frame.body)
        took = self._took.get(frame.kind)
        if took is not None:
            took.add((time.perf_counter_ns() - begun) // 1000)
        return answer

    def _initialize(self, head: bytes, body: memoryview) -> _Answer:
        request = ps_pb2.InitializeRequest.FromString(head)
        done = self._store.workers.initialize(
            call_codec.read_initialize(request, body),
            generation=request.generation,
            buckets=unpack(request.buckets),
            message=request,
            body=(body,),
        )
        self.in_use = done.in_use
        return ps_pb2.InitializeReply(done_before=done.done_before, moved=_bits(done.moved)), ()

    def _push(self, head: bytes, body: memoryview) -> _Answer:
        request = ps_pb2.PushRequest.FromString(head)
        pushed = self._store.workers.push(call_codec.read_push(request, body), message=request, body=(body,))
        self.in_use = pushed.in_use
        reply = ps_pb2.PushReply(
            accepted=pushed.accepted,
            version=pushed.version,
            moved=_bits(pushed.moved),
            refused=pushed.refused,
        )
        return reply, ()

    def _pull(self, head: bytes, body: memoryview) -> _Answer:
        request = ps_pb2.PullRequest.FromString(head)
        return self._store.workers.pull(
            self._pulled,
            generation=request.generation,
            frozen=request.frozen,
            known_version=request.known_version,
            buckets=unpack(request.buckets),
        )

    def _pulled(self, pulled: PullResult) -> _Answer:
        """A copy, since values change as soon as this is over."""
        heads, parts = call_codec.write_arrays({TRAINABLE: pulled.trainable, STATE: pulled.state}, {})
        memory = self._connection.reserve(sum(len(part) for part in parts))
        copy(memory, parts)
        reply = ps_pb2.PullReply(
            initialized=pulled.initialized,
            version=pulled.version,
            newer=to_wire(pulled.newer),
            unchanged=pulled.unchanged,
            arrays=heads,
            moved=_bits(pulled.moved),
        )
        return reply, (memory,)

    def _pull_rows(self, head: bytes, body: memoryview) -> _Answer:
        request = ps_pb2.PullRowsRequest.FromString(head)
        if request.dtype not in TRANSFER:
            raise ValueError(f"rows cannot be sent as {request.dtype!r}")
        dtype = TRANSFER[request.dtype]
        memory = memoryview(b"")

        def reserve(shapes: Sequence[tuple[int, int]]) -> list[Array]:
            nonlocal memory
            memory = self._connection.reserve(sum(count * width for count, width in shapes) * dtype.itemsize)
            numbers = np.frombuffer(memory, dtype) if len(memory) else np.empty(0, dtype)
            ends = np.cumsum([count * width for count, width in shapes])
            return [
                numbers[end - count * width : end].reshape(count, width)
                for (count, width), end in zip(shapes, ends, strict=True)
            ]

        moved = self._store.workers.pull_rows(
            call_codec.read_ids(request, body),
            reserve,
            generation=request.generation,
            frozen=request.frozen,
            buckets=unpack(request.buckets),
        )
        return ps_pb2.PullRowsReply(moved=_bits(moved)), (memory,)

    def _export(self, head: bytes, body: memoryview) -> _Answer:
        request = ps_pb2.PullRowsRequest.FromString(head)
        if len(request.rows) != 1:
            raise ValueError("one table is exported at a time")
        name = request.rows[0].table
        ids, values, moved = self._store.workers.export_rows(
            name, generation=request.generation, buckets=unpack(request.buckets)
        )
        heads, parts = call_codec.write_arrays({name: {"ids": ids, "values": values}}, {})
        return ps_pb2.PullReply(arrays=heads, moved=_bits(moved)), parts


# Not bound to a connection's calls: those would hold each other, and their memory, until Python looks for such cycles,
# which it rarely does.
_METHODS: dict[int, Callable[[_Calls, bytes, memoryview], _Answer]] = {
    call_codec.INITIALIZE: _Calls._initialize,
    call_codec.PULL: _Calls._pull,
    call_codec.PUSH: _Calls._push,
    call_codec.PULL_ROWS: _Calls._pull_rows,
    call_codec.EXPORT: _Calls._export,
}


def _bits(moved: Any) -> bytes:
    return pack(moved) if moved is not None and moved.any() else b""


class _Service:
    """The methods of ps.proto, on encoded messages."""

    def __init__(self, store: Store, unhealthy: Callable[[], str] = lambda: "") -> None:
        self._store = store
        self._unhealthy = unhealthy
        self._saves = SaveQueue()
        self._places = threading.BoundedSemaphore(_WAITING)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Limits the number of calls that wait for other servers."""
        if not self._places.acquire(blocking=False):
            raise NotReady("too many calls wait for other servers")
        try:
            yield
        finally:
            self._places.release()

    def Flush(self, message: bytes, context: Any) -> bytes:
        request = ps_pb2.FlushRequest.FromString(message)
        with self._waiting():
            self._store.master.flush(
                generation=request.generation,
                map_version=request.map_version,
                seconds=_MAP_SECONDS,
                wanted=context.is_active,
            )
        return ps_pb2.FlushReply().SerializeToString()

    def Freeze(self, message: bytes, context: Any) -> bytes:
        request = ps_pb2.FreezeRequest.FromString(message)
        with self._waiting():
            version = self._store.master.freeze(
                request.name,
                generation=request.generation,
                flush=request.flush,
                map_version=request.map_version,
                seconds=_MAP_SECONDS,
                wanted=context.is_active,
            )
        return ps_pb2.FreezeReply(version=version).SerializeToString()

    def Release(self, message: bytes, context: Any) -> bytes:
        self._store.master.release(ps_pb2.ReleaseRequest.FromString(message).name)
        return ps_pb2.ReleaseReply().SerializeToString()

    def Save(self, message: bytes, context: Any) -> bytes:
        request = ps_pb2.SaveRequest.FromString(message)
        written = self._saves.save(
            lambda check: self._store.master.save(
                request.name, Path(request.path), request.buckets, since=request.since, check=check
            ),
            wanted=context.is_active,
        )
        log.info("%s written: %d bytes.", request.path, written.bytes)
        return ps_pb2.SaveReply(
            bytes=written.bytes, crc32=written.crc32, complete=written.complete
        ).SerializeToString()

    def Fence(self, message: bytes, context: Any) -> bytes:
        request = ps_pb2.FenceRequest.FromString(message)
        with self._waiting():
            fenced = self._store.master.fence(
                request.worker, generation=request.generation, wanted=context.is_active
            )
        last = fenced.last
        return ps_pb2.FenceReply(
            sequence=last.sequence,
            lease_id=last.lease_id,
            position=last.position,
            batches=last.batches,
            buckets=numbers(fenced.buckets),
            newer=[
                ps_pb2.PartialBatch(
                    sequence=batch.sequence,
                    lease_id=batch.lease_id,
                    position=batch.position,
                    batches=batch.batches,
                    buckets=pack(mask),
                )
                for mask, batch in fenced.newer
            ],
        ).SerializeToString()

    def ServerStatus(self, message: bytes, context: Any) -> bytes:
        request = ps_pb2.ServerStatusRequest.FromString(message)
        if reason := self._unhealthy():
            # A server that workers cannot reach has failed, although the master's connection is still open.
            raise NotReady(reason)
        if not self._store.master.has_time(_BUSY_SECONDS):
            return ps_pb2.ServerStatusReply(generation=-1).SerializeToString()
        status = self._store.master.status()
        return ps_pb2.ServerStatusReply(
            initialized=status.initialized,
            version=status.version,
            parameters=status.parameters,
            bytes=status.bytes,
            pushes=status.pushes,
            generation=status.generation,
            ready=status.ready,
            rows=status.rows,
            not_finite=status.not_finite,
            refused=status.refused,
            ps_map=None if status.map is None else status.map.to_wire(),
            loads=status.loads,
            filled=[
                ps_pb2.Filled(bucket=bucket, server=server, incarnation=incarnation)
                for bucket, server, incarnation in status.filled
            ],
            taken=status.taken,
            frozen=status.frozen,
            figures=self._store.master.figures() if request.figures else None,
        ).SerializeToString()


def _handlers(service: _Service) -> grpc.GenericRpcHandler[bytes, bytes]:
    names = [method.name for method in ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].methods]
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {name: grpc.unary_unary_rpc_method_handler(_answer(getattr(service, name))) for name in names},
    )


def _answer(method: Callable[[bytes, Any], bytes]) -> Callable[[bytes, Any], bytes]:
    """A method whose errors become the status that tells of them."""

    def behave(message: bytes, context: Any) -> bytes:
        try:
            return method(message, context)
        except (ServerFailure, UserError, ValueError, DecodeError) as error:
            context.abort(status_code(error) or grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("not reached: abort raises") from error

    return behave
