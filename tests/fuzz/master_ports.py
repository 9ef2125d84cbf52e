"""Nonsense at the ports of a master: its own, plain and encrypted, with all-reduce and with shards; and the public one.

After each round a valid client is served, and the process has not grown by more than is allowed. Calls that wait for
something to happen are given up soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from elasticai_api.proto import allreduce_pb2, elasticai_api_pb2, progress_pb2
from elasticdl.jobs.sections.training import ALLREDUCE
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.programs import OpenDataset
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.master import Master
from elasticdl.master.services.endpoints import Servers as MasterServers
from elasticdl.wire import master_pb2
from elasticdl.wire.channel import add_port, open_channel
from tests.fuzz.callers import CALL_SECONDS, Memory, encrypted
from tests.fuzz.mutations import mutated
from tests.master.conftest import Nowhere
from tests.ps.conftest import TOKEN

Round = Callable[[random.Random], None]
# A call that waits is in its wait long before.
_WAIT_SECONDS = 0.05
_SIZE = 100_000

# They end the job because they were asked to, or wait in a way that other fuzzed calls cannot end.
_LEFT_OUT = frozenset({"Watch", "Lease", "Stop", "Fail", "Scale"})
# They may wait.
_WAITING = frozenset({"get_task", "get_dataset_task", "Fetch", "Gather"})


@dataclass(frozen=True, kw_only=True)
class _Method:
    path: str
    request: Descriptor
    streams: bool

    @property
    def waits(self) -> bool:
        return self.path.rpartition("/")[2] in _WAITING


def _methods(service: ServiceDescriptor) -> list[_Method]:
    return [
        _Method(
            path=f"/{service.full_name}/{method.name}",
            request=method.input_type,
            streams=bool(method.server_streaming),
        )
        for method in service.methods
        if method.name not in _LEFT_OUT
    ]


_MASTER = _methods(master_pb2.DESCRIPTOR.services_by_name["Master"])
_ALLREDUCE = _methods(allreduce_pb2.DESCRIPTOR.services_by_name["AllReduce"])
_SHARDS = _methods(elasticai_api_pb2.DESCRIPTOR.services_by_name["Master"])
_PROGRESS = _methods(progress_pb2.DESCRIPTOR.services_by_name["Progress"])
_STATUS = f"/{master_pb2.DESCRIPTOR.services_by_name['Master'].full_name}/Status"

_MODEL: dict[str, Any] = {"model_zoo": "z", "model_def": "a.b.c", "training_data": "d"}
_COMMAND: dict[str, Any] = {"job_command": "true"}


def _message(kind: Descriptor, source: random.Random) -> bytes:
    data = _filled(kind, source).SerializeToString()
    return mutated(data, source) if source.random() < 0.5 else data


def _filled(kind: Descriptor, source: random.Random, depth: int = 0) -> Any:
    message = GetMessageClass(kind)()
    fields: list[Any] = list(kind.fields)
    for field in fields:
        if source.random() < 0.3 or (field.message_type is not None and depth > 2):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.label == field.LABEL_REPEATED:
            getattr(message, field.name).extend(
                _value(field, source, depth) for _ in range(source.choice((0, 1, 3)))
            )
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(_value(field, source, depth))
        else:
            setattr(message, field.name, _value(field, source, depth))
    return message


def _value(field: Any, source: random.Random, depth: int) -> Any:
    if field.message_type is not None:
        return _filled(field.message_type, source, depth + 1)
    kind = field.type
    if kind == field.TYPE_STRING:
        return source.choice(("worker-0", "worker", "worker-9", "training", "i", "", "x" * 5000))
    if kind == field.TYPE_BYTES:
        return source.randbytes(source.choice((0, 1, 32, 300)))
    if kind == field.TYPE_BOOL:
        return source.random() < 0.5
    if kind == field.TYPE_ENUM:
        return source.choice((0, 1, 2, 3, 77, -1))
    if kind in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return source.choice((0.0, 1.0, float("nan"), float("inf"), -1e30))
    widest = 31 if kind in (field.TYPE_INT32, field.TYPE_UINT32, field.TYPE_SFIXED32) else 63
    if kind in (field.TYPE_UINT32, field.TYPE_UINT64):
        return source.choice((0, 1, 2, 100, 2 ** (widest + 1) - 1))
    return source.choice((0, 0, 1, 1, 2, 100, -1, 2**widest - 1, -(2**widest)))


class _ServedMaster:
    """A master with its ports, on an event loop in a thread of its own."""

    def __init__(self, folder: Path, **job: Any) -> None:
        spec = JobSpec.build(job_name="fuzz", **job)
        (folder / "journal").mkdir()
        self.master = Master(spec=spec, folder=folder, platform=Nowhere(), token=TOKEN, environment={})
        self.master.recover()
        self.master.do(JoinNode(node="worker-0", incarnation="i", address="here"))
        if spec.program == "command":
            announcement = DatasetAnnouncement(
                name="training", size=_SIZE, batch_size=10, epochs=1, minibatches_per_shard=1
            )
            self.master.do(OpenDataset(announcement=announcement))
        else:
            self.master.do(AnnounceDataset(dataset="training", size=_SIZE))
        self.port = self.public_port = 0
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
        if self.servers.public is not None:
            self.public_port = self.servers.public.add_port("127.0.0.1:0")
        await self.servers.start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.servers.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self.master._journal.close()
        self.master._events.close()


@dataclass(frozen=True, kw_only=True)
class _Callers:
    """A master, a channel of one who may call, and one of the caller who sends nonsense."""

    master: Master
    good: grpc.Channel
    bad: grpc.Channel


@contextlib.contextmanager
def _served_master(*, job: dict[str, Any], caller: str) -> Iterator[_Callers]:
    with tempfile.TemporaryDirectory() as folder:
        served = _ServedMaster(Path(folder), **job)
        address = f"127.0.0.1:{served.port}"
        good = open_channel(address, TOKEN)
        if caller == "public":
            bad = grpc.insecure_channel(f"127.0.0.1:{served.public_port}")
        else:
            bad = open_channel(address, TOKEN if caller == "token" else "wrong")
        try:
            yield _Callers(master=served.master, good=good, bad=bad)
        finally:
            good.close()
            bad.close()
            served.close()


@contextlib.contextmanager
def _master(methods: list[_Method], *, caller: str, tls: bool = False, **job: Any) -> Iterator[Round]:
    """`caller`: "token", "stranger" (with another token), or "public" (at the port that asks for none)."""
    memory = Memory()
    with contextlib.ExitStack() as environment, contextlib.ExitStack() as stack:
        if tls:
            environment.enter_context(encrypted())
        callers = stack.enter_context(_served_master(job=job, caller=caller))

        def one_round(source: random.Random) -> None:
            nonlocal callers
            if callers.master.state.outcome:
                # What a worker of the job says may fail it: another one for the rounds to come.
                stack.close()
                callers = stack.enter_context(_served_master(job=job, caller=caller))
            method = source.choice(methods)
            try:
                _call(callers.bad, method, _message(method.request, source))
                assert caller != "stranger", "answered without the token"
            except grpc.RpcError as error:
                _check_answer(method, error, caller)
            status = callers.good.unary_unary(_STATUS, request_serializer=bytes, response_deserializer=bytes)
            status(b"", timeout=CALL_SECONDS)
            memory.check()

        yield one_round


def _call(channel: grpc.Channel, method: _Method, message: bytes) -> None:
    seconds = _WAIT_SECONDS if method.waits else CALL_SECONDS
    if method.streams:
        stream: Any = channel.unary_stream(
            method.path, request_serializer=bytes, response_deserializer=bytes
        )(message, timeout=CALL_SECONDS)
        next(iter(stream), None)
        stream.cancel()
    else:
        call = channel.unary_unary(method.path, request_serializer=bytes, response_deserializer=bytes)
        call(message, timeout=seconds)


def _check_answer(method: _Method, error: grpc.RpcError, caller: str) -> None:
    code = error.code()
    assert caller != "stranger" or code is grpc.StatusCode.UNAUTHENTICATED, code
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert method.waits, f"{method.path} hangs"
        assert not method.streams, f"{method.path} hangs"
    # As gRPC calls an exception of the method, or bytes that are no message.
    if code is grpc.StatusCode.UNKNOWN and "DecodeError" not in str(error):
        raise AssertionError(f"{method.path} raised an error of its own") from error


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "master": lambda: _master(_MASTER, caller="stranger", num_ps=1, **_MODEL),
    "master-token": lambda: _master(_MASTER, caller="token", num_ps=1, **_MODEL),
    "master-tls": lambda: _master(_MASTER, caller="stranger", tls=True, num_ps=1, **_MODEL),
    "master-tls-token": lambda: _master(_MASTER, caller="token", tls=True, num_ps=1, **_MODEL),
    "allreduce": lambda: _master(_ALLREDUCE, caller="stranger", distribution_strategy=ALLREDUCE, **_MODEL),
    "allreduce-token": lambda: _master(_ALLREDUCE, caller="token", distribution_strategy=ALLREDUCE, **_MODEL),
    "shards": lambda: _master([*_SHARDS, *_PROGRESS], caller="stranger", **_COMMAND),
    "shards-token": lambda: _master([*_SHARDS, *_PROGRESS], caller="token", **_COMMAND),
    "public": lambda: _master(_SHARDS, caller="public", **_COMMAND),
}
