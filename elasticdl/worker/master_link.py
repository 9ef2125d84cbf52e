"""A worker's line to its master: calls that outlast a restart of the master, and the newest directive.

The master may be killed and come back at any moment. Every call here waits for it and is then made again;
all of them are idempotent (see `master.proto`). No call waits forever: where the host of a local job is
gone, so is this process; on Kubernetes the pod is owned by the job.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_channel
from elasticdl.wire.master_pb2_grpc import MasterStub
from elasticdl.wire.security import check_peer
from elasticdl.worker.lease_memory import LeaseMemory

log = logging.getLogger("elasticdl.worker")

_Reply = TypeVar("_Reply")

# Leases are held by the master for 20 s; a call that takes longer than this has lost its connection.
_CALL_SECONDS = 40.0
# A master that is there answers within milliseconds. Of one that does not, it is asked who listens in its place.
_ANSWER_SECONDS = 1.0
# A signal that comes just before the thread falls asleep does not wake it: no sleep is longer than this.
_SIGNAL_SECONDS = 0.5
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class NotOfThisJob(Exception):
    """The master does not know this node (any more): it was replaced."""


class MasterLink:
    def __init__(self, *, address: str, token: str, node: str) -> None:
        self.node = node
        self.incarnation = uuid.uuid4().hex
        self._address = address
        self._channel = open_channel(address, token)
        self.stub = MasterStub(self._channel)  # type: ignore[no-untyped-call]
        self._directive = pb.Directive()
        self._known = False
        self._serial = 0
        self._moved = threading.Condition()
        self._closed = threading.Event()
        self._leaving = False
        # A signal has ended it, and the master had not.
        self.terminated = False
        self._error: BaseException | None = None
        self._unneeded: Callable[[], None] | None = None
        # For a master of another lineage: one that lost its journal.
        self.memory = LeaseMemory()
        self._lineage = ""
        # How far the journal of that lineage had come.
        self._journal = 0
        self._away = False

    def call(self, method: Callable[..., _Reply], request: object) -> _Reply:
        """Makes a call until it is answered."""
        while True:
            try:
                return method(request, timeout=_CALL_SECONDS, wait_for_ready=True)
            except grpc.RpcError as error:
                if error.code() not in _GONE or self._closed.is_set():
                    raise

    def join(self, address: str = "", *, meanwhile: Callable[[], None] | None = None) -> pb.JoinReply:
        """Says that this node is up, and follows the master's directives from then on. `meanwhile` is called while the
        master is asked. Raises `NotTrusted` if what listens at its address is not the master of this job.
        """
        request = pb.JoinRequest(
            node=self.node, role=self.node.rsplit("-", 1)[0], incarnation=self.incarnation, address=address
        )
        asked = self.stub.Join.future(request, timeout=_ANSWER_SECONDS, wait_for_ready=True)
        if meanwhile is not None:
            meanwhile()
        try:
            reply = self._joined(asked, request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise NotOfThisJob(error.details()) from None
            raise
        self._lineage = reply.lineage
        threading.Thread(target=self._follow, args=(request,), name="directives", daemon=True).start()
        return reply

    def _joined(self, asked: grpc.Future[pb.JoinReply], request: pb.JoinRequest) -> pb.JoinReply:
        try:
            return asked.result()
        except grpc.RpcError as error:
            if error.code() not in _GONE:
                raise
        # Before it is waited for: a channel waits for another server as it does for a master that is not there yet.
        check_peer(self._address)
        reply: pb.JoinReply = self.call(self.stub.Join, request)
        return reply

    def _follow(self, request: pb.JoinRequest) -> None:
        while not self._closed.is_set():
            try:
                if self._away:
                    self._join_again(request)
                stream: Iterator[pb.Directive] = self.stub.Watch(
                    pb.WatchRequest(node=self.node, incarnation=self.incarnation), wait_for_ready=True
                )
                for directive in stream:
                    self._take(directive)
                    if directive.finished:
                        return
                self._join_again(request)
            except grpc.RpcError as error:
                if self._closed.is_set():
                    return
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    self._take(pb.Directive(drain=True))
                    return
                if error.code() not in _GONE:
                    self._error = error
                    self._take(pb.Directive(drain=True))
                    return
                log.info("Waiting for the master, which does not answer: %s", error.code().name)
                self._away = True

    def _join_again(self, request: pb.JoinRequest) -> None:
        request.lineage, request.journal = self._lineage, self._journal
        reply = self.call(self.stub.Join, request)
        if reply.lineage != self._lineage:
            log.info("Reporting leases: the master lost its journal")
            recovered = self.call(self.stub.Tell, self.memory.report(self.node, self._directive))
            self.memory.lose(list(recovered.lost_leases))
            self._lineage, self._journal = reply.lineage, 0
        self._away = False

    def _take(self, directive: pb.Directive) -> None:
        self._journal = max(self._journal, directive.journal)
        with self._moved:
            if self._leaving:
                directive.drain = True
            self._directive = directive
            self._known = True
            self._serial += 1
            self._moved.notify_all()
            self._look_whether_needed()

    def _is_drained(self) -> bool:
        return self._directive.finished or self._directive.drain

    def _look_whether_needed(self) -> None:
        if self._unneeded is not None and self._is_drained() and self._error is None:
            self._unneeded()

    @contextlib.contextmanager
    def unneeded(self, end: Callable[[], None]) -> Iterator[None]:
        """Calls `end` as soon as the master has no work (any more) for this node: the block's
        result would be discarded.
        """
        with self._moved:
            self._unneeded = end
            self._look_whether_needed()
        try:
            yield
        finally:
            with self._moved:
                self._unneeded = None

    # -- waiting ---------------------------------------------------------------------------------------------

    @property
    def serial(self) -> int:
        """Changes with every directive."""
        return self._serial

    def latest(self) -> tuple[int, pb.Directive]:
        """The newest directive and its serial; waits for the first."""
        with self._moved:
            self._moved.wait_for(lambda: self._known)
            if self._error is not None:
                raise self._error
            return self._serial, self._directive

    def directive(self) -> pb.Directive:
        return self.latest()[1]

    def leave(self) -> None:
        """This process has been asked to end (SIGTERM): as if the master had sent it away, which it may have."""
        if not self._is_drained():
            self.terminated = True
        self._leaving = True
        self._take(pb.Directive(drain=True))

    def nudge(self) -> None:
        """Wakes waiting threads: something else than a directive has changed."""
        with self._moved:
            self._moved.notify_all()

    def wait(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Waits until the condition holds, which is checked after every directive and nudge."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        with self._moved:
            while not until():
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._moved.wait(min(left, _SIGNAL_SECONDS))
        return True

    def close(self) -> None:
        self._closed.set()
        self._channel.close()
