"""A store behind gRPC: messages in, calls to the store, messages out.

gRPC's threaded server, not its asyncio one: applying gradients and copying values are long computations,
which would hold up an event loop, and for messages of the size of a model the two are equally fast (100 MB
pulled in 305 against 278 ms, pushed in 337 against 326; 1 MB in 1.3 against 2.7 and 1.8 ms).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from elasticdl.jobs.errors import UserError
from elasticdl.ps.codec import SERVICE, decode, encode
from elasticdl.ps.failures import ServerFailure, status_code
from elasticdl.ps.snapshot import write_snapshot
from elasticdl.ps.store import Pulled, Push, Store
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import add_port, new_server

log = logging.getLogger("elasticdl.ps")

# Calls answered at once; most of them wait for the store's lock or for the network.
_THREADS = 32

_Method = Callable[[bytes], bytes]


class ParameterServer:
    """A port, taken at once, and calls to it, answered from `serve` on."""

    def __init__(
        self, *, token: str, host: str = "127.0.0.1", port: int = 0, advertise: str | None = None
    ) -> None:
        """`advertise`: where others are told to find it, if not where it listens."""
        self._server = new_server(token, threads=_THREADS)
        wrapped = f"[{host}]" if ":" in host else host
        try:
            taken = add_port(self._server, f"{wrapped}:{port}")
        except RuntimeError as error:
            raise UserError(f"The parameter server cannot listen at {wrapped}:{port}: {error}.") from error
        self.address = advertise or f"{wrapped}:{taken}"

    def serve(self, store: Store) -> None:
        self._server.add_generic_rpc_handlers((_handlers(_Service(store)),))
        self._server.start()

    def stop(self, grace_seconds: float | None = None) -> None:
        """Takes no more calls, and waits for those under way."""
        self._server.stop(grace_seconds).wait()


class _Service:
    """The methods of ps.proto, on encoded messages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Two saves of one path would write into each other's file.
        self._saving = threading.Lock()

    def Initialize(self, message: bytes) -> bytes:
        fields = ps_pb2.InitializeRequest
        request, tensors = decode(fields, message, (fields.TRAINABLE_FIELD_NUMBER, fields.STATE_FIELD_NUMBER))
        done_before = self._store.initialize(
            generation=request.generation,
            trainable=tensors[fields.TRAINABLE_FIELD_NUMBER],
            state=tensors[fields.STATE_FIELD_NUMBER],
            optimizer=request.optimizer,
        )
        return ps_pb2.InitializeReply(done_before=done_before).SerializeToString()

    def Pull(self, message: bytes) -> bytes:
        request = ps_pb2.PullRequest.FromString(message)
        return self._store.pull(
            _pull_reply,
            generation=request.generation,
            frozen=request.frozen,
            known_version=request.known_version,
        )

    def Push(self, message: bytes) -> bytes:
        fields = ps_pb2.PushRequest
        request, tensors = decode(fields, message, (fields.GRADIENTS_FIELD_NUMBER, fields.STATE_FIELD_NUMBER))
        pushed = self._store.push(
            Push(
                worker=request.worker,
                sequence=request.sequence,
                version=request.version,
                learning_rate=request.learning_rate,
                gradients=tensors[fields.GRADIENTS_FIELD_NUMBER],
                state=tensors[fields.STATE_FIELD_NUMBER],
                lease_id=request.lease_id,
                position=request.position,
                batches=request.batches,
                generation=request.generation,
            )
        )
        return ps_pb2.PushReply(accepted=pushed.accepted, version=pushed.version).SerializeToString()

    def Freeze(self, message: bytes) -> bytes:
        request = ps_pb2.FreezeRequest.FromString(message)
        version = self._store.freeze(request.name, generation=request.generation, flush=request.flush)
        return ps_pb2.FreezeReply(version=version).SerializeToString()

    def Release(self, message: bytes) -> bytes:
        self._store.release(ps_pb2.ReleaseRequest.FromString(message).name)
        return ps_pb2.ReleaseReply().SerializeToString()

    def Save(self, message: bytes) -> bytes:
        request = ps_pb2.SaveRequest.FromString(message)
        snapshot = self._store.frozen(request.name)
        with self._saving:
            size, crc32 = write_snapshot(Path(request.path), snapshot)
        log.info("%s written: %d bytes.", request.path, size)
        return ps_pb2.SaveReply(bytes=size, crc32=crc32).SerializeToString()

    def Fence(self, message: bytes) -> bytes:
        last = self._store.fence(ps_pb2.FenceRequest.FromString(message).worker)
        return ps_pb2.FenceReply(
            sequence=last.sequence, lease_id=last.lease_id, position=last.position, batches=last.batches
        ).SerializeToString()

    def ServerStatus(self, message: bytes) -> bytes:
        status = self._store.status()
        return ps_pb2.ServerStatusReply(
            initialized=status.initialized,
            version=status.version,
            parameters=status.parameters,
            bytes=status.bytes,
            pushes=status.pushes,
            generation=status.generation,
            ready=status.ready,
        ).SerializeToString()


def _pull_reply(pulled: Pulled) -> bytes:
    head = ps_pb2.PullReply(
        initialized=pulled.initialized, version=pulled.version, unchanged=pulled.unchanged
    )
    return encode(
        head,
        {
            ps_pb2.PullReply.TRAINABLE_FIELD_NUMBER: pulled.trainable,
            ps_pb2.PullReply.STATE_FIELD_NUMBER: pulled.state,
        },
    )


def _handlers(service: _Service) -> grpc.GenericRpcHandler[bytes, bytes]:
    names = [method.name for method in ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].methods]
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {name: grpc.unary_unary_rpc_method_handler(_answer(getattr(service, name))) for name in names},
    )


def _answer(method: _Method) -> Callable[[bytes, Any], bytes]:
    """A method whose errors become the status that tells of them."""

    def behave(message: bytes, context: Any) -> bytes:
        try:
            return method(message)
        except (ServerFailure, UserError, ValueError, DecodeError) as error:
            context.abort(status_code(error) or grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("not reached: abort raises") from error

    return behave
