"""The server of unary calls with the clients that it is for: gRPC's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticdl.wire.http2.server import CallContext, UnaryServer
from tests.serving_thread import ServingThread

Method = Callable[[Any, CallContext], Any]


class Methods:
    """What a test calls, and what it finds out about its calls."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.cancelled = threading.Event()
        self.go_on = asyncio.Event()
        self.peers: list[str] = []
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.was_done: list[bool] = []

    async def Echo(self, request: bytes, context: CallContext) -> bytes:
        self.peers.append(context.peer())
        self.metadata = context.invocation_metadata()
        return request

    async def Large(self, request: bytes, context: CallContext) -> bytes:
        return request * 1_000_000

    async def Wait(self, request: bytes, context: CallContext) -> bytes:
        self.was_done.append(context.done())
        self.waiting.set()
        try:
            await self.go_on.wait()
            # A second time, of a coroutine that waits already.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.was_done.append(context.done() and context.cancelled())
            self.cancelled.set()
            raise
        return request

    async def Abort(self, request: bytes, context: CallContext) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, request.decode())

    async def AbortLater(self, request: bytes, context: CallContext) -> bytes:
        await asyncio.sleep(0)
        return await self.Abort(request, context)

    async def Raise(self, request: bytes, context: CallContext) -> bytes:
        raise ValueError("an error of the method")

    async def AwaitError(self, request: bytes, context: CallContext) -> bytes:
        def fail() -> None:
            raise ValueError("an error of what it waits for")

        await asyncio.get_running_loop().run_in_executor(None, fail)
        return request

    async def Typed(self, request: pb.GetTaskRequest, context: CallContext) -> pb.Task:
        return pb.Task(task_id=request.worker_id)


class Served:
    """A server in a thread, and a channel to it."""

    def __init__(self) -> None:
        self.port = 0
        self.thread = ServingThread(self._serve)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")

    async def _serve(self, ready: Callable[[], None], stopping: asyncio.Event) -> None:
        self.methods = Methods()
        plain = {
            name: grpc.unary_unary_rpc_method_handler(getattr(self.methods, name))
            for name in ("Echo", "Large", "Wait", "Abort", "AbortLater", "Raise", "AwaitError")
        }
        typed = grpc.unary_unary_rpc_method_handler(
            self.methods.Typed, pb.GetTaskRequest.FromString, pb.Task.SerializeToString
        )
        stream = grpc.unary_stream_rpc_method_handler(self.methods.Echo)
        service = {**plain, "Typed": typed, "Stream": stream}
        self.server = UnaryServer()
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Service", service)])
        self.port = self.server.add_port("127.0.0.1:0")
        await self.server.start()
        ready()
        await stopping.wait()
        await self.server.stop(None)

    def stop_server(self, grace: float | None) -> Any:
        """Begins to stop it; the result is there when it has stopped."""
        return asyncio.run_coroutine_threadsafe(self.server.stop(grace), self.thread._loop)

    def method(self, name: str) -> Any:
        return self.channel.unary_unary(f"/a.Service/{name}", None, None)

    def close(self) -> None:
        self.channel.close()
        self.thread.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    try:
        yield made
    finally:
        made.close()


def failure(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    found: Any = error.value
    return found.code(), found.details()


@pytest.mark.parametrize("size", [0, 1, 5, 16_379, 16_380, 70_000, 3_000_000])
def test_message_of_any_size_goes_there_and_back(served: Served, size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert served.method("Echo")(message, timeout=60) == message


def test_reply_larger_than_every_window(served: Served) -> None:
    channel = grpc.insecure_channel(
        f"127.0.0.1:{served.port}", options=[("grpc.max_receive_message_length", -1)]
    )
    large = channel.unary_unary("/a.Service/Large", None, None)
    assert large(b"0123456789", timeout=60) == b"0123456789" * 1_000_000
    channel.close()


def test_many_calls_of_one_connection(served: Served) -> None:
    echo = served.method("Echo")
    calls = [echo.future(str(number).encode(), timeout=60) for number in range(2_000)]
    assert [int(call.result()) for call in calls] == list(range(2_000))
    assert len(set(served.methods.peers)) == 1


def test_large_messages_of_one_connection_at_a_time(served: Served) -> None:
    echo = served.method("Echo")
    messages = [bytes([number]) * 1_000_000 for number in range(10)]
    calls = [echo.future(message, timeout=60) for message in messages]
    assert [call.result() for call in calls] == messages


def test_asyncio_client(served: Served) -> None:
    async def call() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            echo = channel.unary_unary("/a.Service/Echo", None, None)
            assert await asyncio.gather(*(echo(bytes([n]), timeout=60) for n in range(50))) == [
                bytes([n]) for n in range(50)
            ]

    asyncio.run(call())


def test_method_sees_metadata_and_peer(served: Served) -> None:
    served.method("Echo")(b"", metadata=(("elasticai-request", "7"),), timeout=60)
    assert ("elasticai-request", "7") in served.methods.metadata
    assert not any(name.startswith(":") for name, _ in served.methods.metadata)
    assert served.methods.peers[0].startswith("ipv4:127.0.0.1:")


def test_messages_are_decoded_and_encoded(served: Served) -> None:
    typed = served.channel.unary_unary(
        "/a.Service/Typed", pb.GetTaskRequest.SerializeToString, pb.Task.FromString
    )
    assert typed(pb.GetTaskRequest(worker_id=9), timeout=60).task_id == 9
    assert failure(lambda: served.method("Typed")(b"\xff", timeout=60))[0] is grpc.StatusCode.INTERNAL


def test_call_waits_without_delaying_others(served: Served) -> None:
    waiting = served.method("Wait").future(b"first", timeout=60)
    assert served.methods.waiting.wait(60)
    assert served.method("Echo")(b"second", timeout=60) == b"second"
    served.thread.do(served.methods.go_on.set)
    assert waiting.result() == b"first"
    assert served.methods.was_done == [False]


@pytest.mark.parametrize("name", ["Abort", "AbortLater"])
@pytest.mark.parametrize("message", ["", "plain", "100 % “Größe”\nand more"])
def test_aborted_call_has_code_and_message(served: Served, name: str, message: str) -> None:
    found = failure(lambda: served.method(name)(message.encode(), timeout=60))
    assert found == (grpc.StatusCode.FAILED_PRECONDITION, message)


@pytest.mark.parametrize(
    ("name", "error"),
    [("Raise", "an error of the method"), ("AwaitError", "an error of what it waits for")],
)
def test_error_of_a_method_is_logged_and_answered(
    served: Served, caplog: pytest.LogCaptureFixture, name: str, error: str
) -> None:
    code, message = failure(lambda: served.method(name)(b"", timeout=60))
    assert code is grpc.StatusCode.UNKNOWN
    assert error in message
    assert error in caplog.text
    assert served.method("Echo")(b"x", timeout=60) == b"x"


@pytest.mark.parametrize("path", ["/a.Service/None", "/b.Service/Echo", "/a.Service/Stream"])
def test_unknown_method_is_unimplemented(served: Served, path: str) -> None:
    call = served.channel.unary_unary(path, None, None)
    assert failure(lambda: call(b"", timeout=60))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_too_long_message_is_refused(served: Served) -> None:
    found = failure(lambda: served.method("Echo")(bytes((4 << 20) + 1), timeout=60))
    assert found[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.method("Echo")(bytes(4 << 20)[: (4 << 20) - 100], timeout=60)


def test_compressed_message_is_refused(served: Served) -> None:
    call = served.channel.unary_unary("/a.Service/Echo", None, None)
    found = failure(lambda: call(bytes(10_000), compression=grpc.Compression.Gzip, timeout=60))
    assert found[0] is grpc.StatusCode.UNIMPLEMENTED


def test_cancelled_call_ends_its_method(served: Served) -> None:
    call = served.method("Wait").future(b"", timeout=60)
    assert served.methods.waiting.wait(60)
    call.cancel()
    assert served.methods.cancelled.wait(60)
    assert served.methods.was_done == [False, True]


def test_closed_channel_ends_its_calls(served: Served) -> None:
    # Kept: gRPC cancels a call whose result is not.
    call = served.method("Wait").future(b"", timeout=60)
    assert served.methods.waiting.wait(60)
    served.channel.close()
    assert served.methods.cancelled.wait(60)
    assert call.code() is grpc.StatusCode.CANCELLED


def test_stop_answers_calls_under_way(served: Served) -> None:
    waiting = served.method("Wait").future(b"first", timeout=60)
    assert served.methods.waiting.wait(60)
    stopped = served.stop_server(60.0)
    served.thread.do(served.methods.go_on.set)
    assert waiting.result() == b"first"
    stopped.result(60)


def test_stop_ends_calls_that_wait_on(served: Served) -> None:
    waiting = served.method("Wait").future(b"first", timeout=60)
    assert served.methods.waiting.wait(60)
    served.stop_server(None).result(60)
    assert failure(waiting.result)[0] is grpc.StatusCode.UNAVAILABLE
    assert failure(lambda: served.method("Echo")(b"", timeout=60))[0] is grpc.StatusCode.UNAVAILABLE


def test_port_in_use_is_an_error(served: Served) -> None:
    with pytest.raises(RuntimeError, match="cannot be listened at"):
        UnaryServer().add_port(f"127.0.0.1:{served.port}")
