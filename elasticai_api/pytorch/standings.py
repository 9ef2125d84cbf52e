"""A worker's line to the master for all-reduce: the newest standing, and calls that outlast a restart of the master."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc

from elasticai_api.common.connection import open_channel
from elasticai_api.errors import MasterError, TokenError
from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.proto.allreduce_pb2_grpc import AllReduceStub

_Reply = TypeVar("_Reply")

_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_CALL_SECONDS = 30.0
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # A master that was killed is back within a second; a machine that vanished is noticed within half a minute.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class Line:
    """Calls to the master's all-reduce service, with the job's token."""

    def __init__(self, *, address: str, token: str, worker: str) -> None:
        self.worker = worker
        self.incarnation = uuid.uuid4().hex
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = open_channel(address, _OPTIONS)
        self.stub: Any = AllReduceStub(self._channel)  # type: ignore[no-untyped-call]
        self.closed = False

    @classmethod
    def of_file(cls, *, address: str, token_file: str, worker: str) -> Line:
        return cls(address=address, token=Path(token_file).read_text().strip(), worker=worker)

    def call(self, method: Callable[..., _Reply], request: object) -> _Reply:
        """Makes a call until it is answered."""
        while True:
            try:
                return method(request, timeout=_CALL_SECONDS, wait_for_ready=True, metadata=self._metadata)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                    raise TokenError(error.details()) from None
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise MasterError(
                        "This job is none for all-reduce: start it with --distribution_strategy=AllreduceStrategy."
                    ) from None
                if error.code() not in _GONE or self.closed:
                    raise MasterError(error.details() or str(error.code())) from error

    def stream(self, method: Callable[..., Iterator[_Reply]], request: object) -> Iterator[_Reply]:
        return method(request, wait_for_ready=True, metadata=self._metadata)

    def close(self) -> None:
        self.closed = True
        self._channel.close()


class Standings:
    """Follows the master's word on rounds and data from a thread of its own."""

    def __init__(
        self, line: Line, *, address: str, generation: int, dataset: str, changed: Callable[[], None]
    ) -> None:
        """`changed` is called, from that thread, after every new standing."""
        self._line = line
        self._changed = changed
        self._request = pb.GatherRequest(
            worker=line.worker,
            incarnation=line.incarnation,
            address=address,
            generation=generation,
            dataset=dataset,
        )
        self._moved = threading.Condition()
        self._newest: pb.Standing | None = None
        self._error: Exception | None = None
        self._closed = False
        self._call: Any = None
        self._thread = threading.Thread(target=self._follow, name="standings", daemon=True)
        self._thread.start()

    def synced(self, number: int) -> None:
        """Reports that the worker has the state from this round on; repeated to a master that has lost it."""
        self._request.since = self._request.since or number

    def newest(self) -> pb.Standing:
        """Waits for the first."""
        with self._moved:
            self._moved.wait_for(lambda: self._newest is not None or self._error is not None)
            if self._error is not None:
                raise self._error
            assert self._newest is not None
            return self._newest

    def wait(self, until: Callable[[pb.Standing], bool], seconds: float | None = None) -> bool:
        with self._moved:
            return self._moved.wait_for(
                lambda: self._error is not None or (self._newest is not None and until(self._newest)), seconds
            )

    def _follow(self) -> None:
        while not self._closed:
            try:
                self._call = self._line.stream(self._line.stub.Gather, self._request)
                for standing in self._call:
                    self._take(standing)
                    if standing.finished:
                        return
            except grpc.RpcError as error:
                if self._closed or self._line.closed:
                    return
                if error.code() not in _GONE:
                    refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
                    self._fail((TokenError if refused else MasterError)(error.details()))
                    return

    def _take(self, standing: pb.Standing) -> None:
        with self._moved:
            self._newest = standing
            self._request.round = max(self._request.round, standing.round)
            self._moved.notify_all()
        self._changed()

    def _fail(self, error: Exception) -> None:
        with self._moved:
            self._error = error
            self._moved.notify_all()
        self._changed()

    def close(self) -> None:
        self._closed = True
        if self._call is not None:
            self._call.cancel()
