"""The parameter servers of a job, as a worker sees them: one model, given once, pulled and pushed.

All servers are called at once, and a call that failed because its server could not be reached is made again,
until it succeeds, or until the worker has something better to do: `stop` is asked all the time. Repeating is
safe: a push carries a number, and a server that has applied it already only repeats its answer.
"""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from elasticdl.jobs.errors import UserError
from elasticdl.ps.codec import SERVICE, decode, encode
from elasticdl.ps.failures import CallStopped, ServersUnreachable, from_status
from elasticdl.ps.shares import STATE, TRAINABLE, owners
from elasticdl.ps.tensors import Array, find_not_finite
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_channel

# A server that is being restored says so at once. It is asked again after a pause that doubles up to the
# longest.
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
# How long a worker may go on waiting after `stop` would have told it not to.
_STOP_SECONDS = 0.1
# Cancelled: the server is shutting down. Both say nothing about whether the call was carried out.
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class StaleGradients(Exception):
    """Synchronous training has moved on: pull, compute the same batch again, and push that."""

    def __init__(self, versions: Mapping[int, int]) -> None:
        super().__init__("the gradients were computed on values that are too old")
        self.versions = versions


@dataclass(frozen=True, kw_only=True)
class Values:
    """A model, as pulled: all of it, or nothing if no server had anything new. Arrays are read-only."""

    initialized: bool
    # By the number of the server: to be given to the next pull and push.
    versions: Mapping[int, int] = field(default_factory=dict)
    trainable: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Array] = field(default_factory=dict)


class ParameterClient:
    """For one worker, in one thread at a time, and for one generation."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: str,
        worker: str,
        *,
        generation: int = 0,
        stop: Callable[[], bool] = lambda: False,
        patience_seconds: float | None = None,
        last_sequence: int = 0,
    ) -> None:
        """`last_sequence`: the number of this worker's last batch, if it had another client in this generation."""
        self._worker = worker
        self._generation = generation
        self._stop = stop
        self._patience = patience_seconds
        self._sequence = last_sequence
        self._refused: tuple[int, int, int] | None = None
        self._owners: dict[str, dict[str, int]] | None = None
        self._channels = [open_channel(address, token) for address in addresses]

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    @property
    def last_sequence(self) -> int:
        return self._sequence

    def initialize(
        self,
        trainable: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: ps_pb2.OptimizerConfig,
    ) -> bool:
        """Gives every server its share, if nobody has yet; returns whether somebody had. Needed before `push`.

        Raises `UserError` if the servers hold another model than this.
        """
        sizes = {
            TRAINABLE: {name: value.nbytes for name, value in trainable.items()},
            STATE: {name: value.nbytes for name, value in state.items()},
        }
        self._owners = owners(sizes, len(self._channels))
        head = ps_pb2.InitializeRequest(generation=self._generation, optimizer=optimizer)
        trainable_field, state_field = head.TRAINABLE_FIELD_NUMBER, head.STATE_FIELD_NUMBER
        replies = self._call(
            "Initialize",
            {
                server: encode(
                    head,
                    {
                        trainable_field: self._share(TRAINABLE, trainable, server),
                        state_field: self._share(STATE, state, server),
                    },
                )
                for server in range(len(self._channels))
            },
        )
        return any(ps_pb2.InitializeReply.FromString(reply).done_before for reply in replies.values())

    def pull(self, *, frozen: str = "", known_versions: Mapping[int, int] | None = None) -> Values:
        """The values of now, or of a frozen copy; nothing where all servers are at the versions known."""
        known = dict(known_versions or {})
        servers = range(len(self._channels))
        replies = self._pull(frozen, {server: known.get(server, -1) for server in servers})
        unchanged = [server for server, reply in replies.items() if reply[0].unchanged]
        if unchanged and len(unchanged) < len(servers):
            # Half a model is of no use: the rest too, though it may be known.
            replies |= self._pull(frozen, dict.fromkeys(unchanged, -1))
        trainable: dict[str, Array] = {}
        state: dict[str, Array] = {}
        for _, tensors in replies.values():
            trainable |= tensors[ps_pb2.PullReply.TRAINABLE_FIELD_NUMBER]
            state |= tensors[ps_pb2.PullReply.STATE_FIELD_NUMBER]
        return Values(
            initialized=all(head.initialized for head, _ in replies.values()),
            versions={server: replies[server][0].version for server in servers},
            trainable=trainable,
            state=state,
        )

    def _pull(
        self, frozen: str, known: Mapping[int, int]
    ) -> dict[int, tuple[ps_pb2.PullReply, dict[int, dict[str, Array]]]]:
        kind = ps_pb2.PullReply
        requests = {
            server: ps_pb2.PullRequest(
                frozen=frozen, known_version=version, generation=self._generation
            ).SerializeToString()
            for server, version in known.items()
        }
        fields = (kind.TRAINABLE_FIELD_NUMBER, kind.STATE_FIELD_NUMBER)
        return {server: decode(kind, reply, fields) for server, reply in self._call("Pull", requests).items()}

    def push(
        self,
        gradients: Mapping[str, Array],
        *,
        state: Mapping[str, Array] | None = None,
        learning_rate: float,
        versions: Mapping[int, int],
        lease_id: int = 0,
        position: int = 0,
        batches: int = 0,
    ) -> dict[int, int]:
        """Has one batch applied, exactly once on every server, and returns their versions.

        Lease, position and batches tell which batch it was. Raises `StaleGradients` if a server refused: the
        same batch then comes again. Raises `UserError` if the gradients are not finite.
        """
        bad = find_not_finite(gradients)
        if bad is not None:
            # Before any server has applied its part of it.
            raise UserError(
                f"The gradient of {bad} is not finite (NaN or infinity).",
                hint="A smaller learning rate, clipped gradients or other data may help.",
            )
        batch = (lease_id, position, batches)
        if self._refused not in (None, batch):
            # The batch that was refused does not come again. Some servers may have taken it: its number is
            # used up.
            self._sequence += 1
        replies = self._push(batch, gradients, state or {}, learning_rate, versions)
        reached = {server: reply.version for server, reply in replies.items()}
        if not all(reply.accepted for reply in replies.values()):
            self._refused = batch
            raise StaleGradients(reached)
        self._refused = None
        self._sequence += 1
        return reached

    def _push(
        self,
        batch: tuple[int, int, int],
        gradients: Mapping[str, Array],
        state: Mapping[str, Array],
        learning_rate: float,
        versions: Mapping[int, int],
    ) -> dict[int, ps_pb2.PushReply]:
        lease_id, position, batches = batch
        kind = ps_pb2.PushRequest
        requests = {}
        # To all of them, even those that own nothing of it: every server knows every worker's last batch.
        for server in range(len(self._channels)):
            head = kind(
                worker=self._worker,
                sequence=self._sequence + 1,
                version=versions.get(server, -1),
                learning_rate=learning_rate,
                lease_id=lease_id,
                position=position,
                batches=batches,
                generation=self._generation,
            )
            requests[server] = encode(
                head,
                {
                    kind.GRADIENTS_FIELD_NUMBER: self._share(TRAINABLE, gradients, server),
                    kind.STATE_FIELD_NUMBER: self._share(STATE, state, server),
                },
            )
        replies = self._call("Push", requests)
        return {server: ps_pb2.PushReply.FromString(reply) for server, reply in replies.items()}

    def _share(self, group: str, arrays: Mapping[str, Array], server: int) -> dict[str, Array]:
        if self._owners is None:
            raise ValueError("initialize comes before push")
        owner = self._owners[group]
        unknown = [name for name in arrays if name not in owner]
        if unknown:
            raise UserError(f"{unknown[0]} was not in the model when the parameter servers were given it.")
        return {name: array for name, array in arrays.items() if owner[name] == server}

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(self, method: str, requests: Mapping[int, bytes]) -> dict[int, bytes]:
        """Calls several servers at once, and each again until it answers. Returns their replies."""
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        calls: dict[int, Any] = {}
        replies: dict[int, bytes] = {}
        pauses = dict.fromkeys(requests, _FIRST_PAUSE_SECONDS)
        # When to call whom: all of them now.
        due = [(0.0, server) for server in requests]
        begun = time.monotonic()
        try:
            while len(replies) < len(requests):
                now = time.monotonic()
                while due and due[0][0] <= now:
                    _, server = heapq.heappop(due)
                    calls[server] = self._start(method, server, requests[server], done)
                try:
                    server = done.get(timeout=min(_STOP_SECONDS, due[0][0] - now) if due else _STOP_SECONDS)
                except queue.Empty:
                    self._check_patience(
                        begun, method, [server for server in requests if server not in replies]
                    )
                    continue
                call = calls[server]
                if call.code() is grpc.StatusCode.OK:
                    replies[server] = call.result()
                elif call.code() in _AGAIN:
                    self._check_patience(begun, method, [server])
                    heapq.heappush(due, (time.monotonic() + pauses[server], server))
                    pauses[server] = min(2 * pauses[server], _LONGEST_PAUSE_SECONDS)
                else:
                    raise from_status(call.code(), call.details() or "")
        finally:
            for server, call in calls.items():
                if server not in replies:
                    call.cancel()
        return replies

    def _start(self, method: str, server: int, request: bytes, done: queue.SimpleQueue[int]) -> Any:
        multicallable = self._channels[server].unary_unary(f"/{SERVICE}/{method}", None, None)
        call = multicallable.future(request, wait_for_ready=True)
        call.add_done_callback(lambda _: done.put(server))
        return call

    def _check_patience(self, begun: float, method: str, servers: Sequence[int]) -> None:
        if self._stop():
            raise CallStopped(f"{method} was given up")
        if self._patience is not None and time.monotonic() - begun > self._patience:
            names = ", ".join(f"ps-{server}" for server in servers)
            raise ServersUnreachable(f"no answer from {names} for {self._patience:g} seconds")
