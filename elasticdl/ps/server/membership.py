"""A parameter server as a node of its job: it joins the master, and follows its directives.

The newest directive has the desired state: which generation of the model to hold, from which checkpoint
(`generations.py`), and when to exit. The master may be unreachable at any time, for any time. The server continues to
serve meanwhile, and reconnects as soon as the master can be reached.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

import grpc

from elasticdl.backoff import Backoff
from elasticdl.errors import UserError
from elasticdl.ps.server.generations import Generations
from elasticdl.ps.server.identity import Identity
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import master_pb2
from elasticdl.wire.channel import open_channel
from elasticdl.wire.master_pb2_grpc import MasterStub
from elasticdl.wire.security import check_peer

log = logging.getLogger("elasticdl.ps")

# gRPC itself waits between attempts to connect. This is for a master that can be reached and fails all the
# same.
_BACKOFF = Backoff(initial_seconds=0.1, max_seconds=5.0)
# A master that comes back is there within seconds.
_TELLING_SECONDS = 30.0
# The master's last word on a node: coming again would not help.
_FINAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
)


class NodeRejected(Exception):
    """The master does not take this node (any more)."""


class Member:
    """A parameter server in its job, from its start to its end."""

    def __init__(
        self, identity: Identity, server: ParameterServer, settings_of: Callable[[str], ServerSettings]
    ) -> None:
        """`settings_of` reads the settings out of the job's description, which the master gives."""
        self._identity = identity
        self._server = server
        self._settings_of = settings_of
        self._incarnation = uuid.uuid4().hex
        self._channel = open_channel(identity.master_address, identity.token)
        self._master = MasterStub(self._channel)  # type: ignore[no-untyped-call]
        self._generations: Generations | None = None
        self._stopped = threading.Event()
        # The failure that the store reports; and the master's directives, which are not waited for then.
        self._failure: UserError | None = None
        self._directives: grpc.CallIterator[master_pb2.Directive] | None = None

    def run(self) -> None:
        """Serves until the master says that it is enough, or until `close` in another thread.

        Raises `UserError` if a checkpoint cannot be used, or if the user's own optimizer has failed; `NodeRejected`
        if the master has no use for this node; `NotTrusted` if what listens at its address is not the master of this
        job.
        """
        check_peer(self._identity.master_address)
        failures = 0
        while not self._stopped.is_set():
            try:
                self._join()
                for directive in self._watch():
                    failures = 0
                    if not self.apply_directive(directive):
                        return
            except grpc.RpcError as error:
                if self._failure is not None:
                    raise self._failure from None
                if error.code() in _FINAL:
                    raise NodeRejected(error.details()) from error
                log.info("Waiting for the master, which does not answer: %s", error.code().name)
            except ValueError:
                # gRPC's way to say that the channel has been closed.
                if not self._stopped.is_set():
                    raise
            failures += 1
            self._stopped.wait(_BACKOFF.delay(failures))

    def fail(self, message: str) -> None:
        """Reports to the master why this node is about to end. If that fails, its replacement will report it."""
        request = master_pb2.FailRequest(node=self._identity.node, kind="definition", message=message)
        try:
            self._master.Fail(request, wait_for_ready=True, timeout=_TELLING_SECONDS)
        except grpc.RpcError as error:
            log.warning("The master cannot be reached to report a failure: %s", error.code().name)

    def close(self) -> None:
        """Ends all calls, in both directions."""
        self._stopped.set()
        self._server.stop(grace_seconds=1.0)
        self._channel.close()

    def _join(self) -> None:
        reply = self._master.Join(
            master_pb2.JoinRequest(
                node=self._identity.node,
                role="ps",
                incarnation=self._incarnation,
                address=self._server.address,
            ),
            wait_for_ready=True,
        )
        if self._generations is None:
            store = Store(
                self._settings_of(reply.job_spec),
                number=self._identity.number,
                incarnation=self._incarnation,
                failed=self._end_with,
            )
            self._generations = Generations(store)
            self._server.serve(store)
            log.info("%s serves at %s.", self._identity.node, self._server.address)

    def _watch(self) -> grpc.CallIterator[master_pb2.Directive]:
        request = master_pb2.WatchRequest(node=self._identity.node, incarnation=self._incarnation)
        stream: grpc.CallIterator[master_pb2.Directive] = self._master.Watch(request, wait_for_ready=True)
        self._directives = stream
        if self._failure is not None:
            stream.cancel()  # type: ignore[no-untyped-call]
        return stream

    def _end_with(self, error: UserError) -> None:
        """Has `run` raise an error, which comes from another thread."""
        self._failure = self._failure or error
        if self._directives is not None:
            self._directives.cancel()  # type: ignore[no-untyped-call]

    def apply_directive(self, directive: master_pb2.Directive) -> bool:
        """Does what a directive wants. False: nothing more, this node is to go."""
        if directive.finished or directive.drain:
            return False
        assert self._generations is not None
        self._generations.apply_directive(directive)
        return True
