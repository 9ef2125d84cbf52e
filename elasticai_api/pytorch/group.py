"""The connections of one round, and collectives over them that can be given up.

A group is made for a round and dropped with it; there is no default group and nothing global. Its members meet at the
store of the first of them. Backends are those of torch.distributed: gloo, and NCCL beside it for what is on GPUs, where
the members have found that they all can (`devices.py`).

Failure modes
    A peer dies: its connections close, and collectives with it raise `GroupBroken` at once. A peer disappears without
    closing them, or has joined another round: the master's next round shows that; a waiting member polls for it
    (`stale`), and gives up. What was given up stays in memory until the backend has released it too. A thread that is
    given up while it connects must end before Python does, which would end it inside C++, and the process with it: so
    members first see each other at the store, which can be left at any time, and only then connect. NCCL does not
    always notice a dead peer, and what waits for one cannot be interrupted: its works are looked at instead of waited
    for, it connects in a thread of its own, and it is aborted with the group.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# How often a waiting member checks that its round is still current.
_GLANCE = timedelta(milliseconds=100)
# How often works on a GPU are looked at: a step waits half of it longer than it must, on average.
_GPU_GLANCE_SECONDS = 0.0005
# The longest that a healthy peer may take for a step or an evaluation. A dead one is noticed in other ways.
_PATIENCE = timedelta(minutes=30)
# The longest that members wait for each other at the beginning of a round, before they try the next one.
_MEETING = timedelta(minutes=5)
# How often they look whether all have come.
_MEETING_GLANCE_SECONDS = 0.005
# A member that met the others and has not connected after so long is dead.
_CONNECTING = timedelta(seconds=30)
# The longest that a process waits at its end for abandoned connections.
_LAST_WAIT_SECONDS = 10.0

Stale = Callable[[], bool]


class GroupBroken(Exception):
    """The round is over for this group; everything not reduced is as it was."""


class MeetingPoint:
    """This process's store: where the members of a round find each other if it is the first of them."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        # Only where the job's network is: by itself the store would listen everywhere.
        self._socket.bind((host, 0))
        self._socket.listen(128)
        port = self._socket.getsockname()[1]
        self.store = dist.TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_PATIENCE,
            master_listen_fd=self._socket.fileno(),
            use_libuv=False,
        )
        # The store has taken it over and closes it.
        self._socket.detach()
        self.address = f"{host}:{port}"


@dataclass(kw_only=True)
class Reduction:
    """Collectives under way."""

    works: list[_Work]
    tensors: list[Any]


@dataclass(frozen=True, kw_only=True)
class _Work:
    work: Any
    # Its `wait` does not block the caller, but the stream of the GPU.
    on_gpu: bool = False

    @property
    def done(self) -> bool:
        return bool(self.work.is_completed())


class Group:
    """The members of one round, connected. With one member there is nothing to connect."""

    # Tensors of abandoned groups, to which backends may still be writing.
    _abandoned: list[tuple[Any, list[Reduction]]] = []  # noqa: RUF012 - of the process, not of a group

    def __init__(self, *, number: int, rank: int, workers: Sequence[str], backend: Any, stale: Stale) -> None:
        self.number = number
        self.rank = rank
        self.workers = tuple(workers)
        self._backend = backend
        # For tensors of these kinds of devices another one.
        self._carriers: dict[str, Any] = {}
        self._stale = stale
        self._running: list[Reduction] = []

    @property
    def size(self) -> int:
        return len(self.workers)

    def watch(self, stale: Stale) -> None:
        """Sets the check by which waiting members find that their round is over."""
        self._stale = stale

    def carry(self, device_type: str, connect: Callable[[], Any]) -> None:
        """Sends tensors on devices of this type by the backend that `connect` makes, from now on, in all members."""
        if self._backend is not None:
            self._carriers[device_type] = _patiently(
                lambda _given_up: connect(), f"round-{self.number}-{device_type}", self._stale
            )

    # -- collectives -----------------------------------------------------------------------------------------

    def start_sum(self, tensors: Sequence[Any]) -> Reduction:
        """Begins to add tensors up over all members, in place."""
        reduction = Reduction(works=[], tensors=list(tensors))
        if self._backend is None:
            return reduction
        self._running.append(reduction)
        try:
            for tensor in tensors:
                carrier = self._carriers.get(tensor.device.type)
                work = (carrier or self._backend).allreduce([tensor])
                reduction.works.append(_Work(work=work, on_gpu=carrier is not None))
        except RuntimeError as error:
            raise GroupBroken(str(error)) from error
        return reduction

    def wait(self, reduction: Reduction) -> None:
        for work in reduction.works:
            if work.on_gpu:
                self._look_at(work)
            self._wait(work.work)
        if self._backend is not None:
            self._running.remove(reduction)

    def sum(self, tensors: Sequence[Any]) -> None:
        self.wait(self.start_sum(tensors))

    def broadcast(self, tensors: Sequence[Any], source: int) -> None:
        if self._backend is None:
            return
        options = dist.BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        reduction = Reduction(works=[], tensors=list(tensors))
        self._running.append(reduction)
        try:
            for tensor in tensors:
                reduction.works.append(_Work(work=self._backend.broadcast([tensor], options)))
        except RuntimeError as error:
            raise GroupBroken(str(error)) from error
        self.wait(reduction)

    def _look_at(self, work: _Work) -> None:
        pause = threading.Event()
        while not work.done:
            if self._stale():
                raise GroupBroken("another round has begun")
            pause.wait(_GPU_GLANCE_SECONDS)

    def _wait(self, work: Any) -> None:
        while True:
            try:
                work.wait(_GLANCE)
                return
            except RuntimeError as error:
                if work.is_completed():
                    raise GroupBroken(_first_line(error)) from error
            if self._stale():
                raise GroupBroken("another round has begun")

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets the others know, as far as they wait for this member: its connections close."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        carriers, self._carriers = list(self._carriers.values()), {}
        for each in (*carriers, backend):
            with contextlib.suppress(RuntimeError, AttributeError, NotImplementedError):
                each.abort()
        Group._abandoned.append(([backend, *carriers], self._running))
        Group._abandoned[:] = [
            (held, running)
            for held, running in Group._abandoned
            if any(not work.done for reduction in running for work in reduction.works)
        ]


def form(
    *, number: int, rank: int, workers: Sequence[str], address: str, meeting: MeetingPoint, stale: Stale
) -> Group:
    """Connects this process with the other members of a round, who do the same. Raises `GroupBroken`."""
    if len(workers) == 1:
        return Group(number=number, rank=0, workers=workers, backend=None, stale=stale)

    def connect(given_up: threading.Event) -> Any:
        return _connect(number, rank, len(workers), address, meeting, given_up)

    backend = _patiently(connect, f"round-{number}", stale)
    return Group(number=number, rank=rank, workers=workers, backend=backend, stale=stale)


_connecting: set[threading.Thread] = set()


def _patiently(connect: Callable[[threading.Event], Any], name: str, stale: Stale) -> Any:
    """Connects, unless the round is over before that. Raises `GroupBroken`."""
    made: list[Any] = []
    failed: list[BaseException] = []
    finished, given_up = threading.Event(), threading.Event()

    def run() -> None:
        try:
            made.append(connect(given_up))
        except (RuntimeError, OSError, GroupBroken) as error:
            failed.append(error)
        finished.set()
        _connecting.discard(thread)

    # Its C++ code can't be interrupted.
    thread = threading.Thread(target=run, name=name, daemon=True)
    _connecting.add(thread)
    thread.start()
    while not finished.wait(_GLANCE.total_seconds() / 2):
        if stale():
            given_up.set()
            raise GroupBroken("another round has begun")
    if failed:
        raise GroupBroken(_first_line(failed[0]))
    return made[0]


@atexit.register
def _wait_for_connecting() -> None:
    until = time.monotonic() + _LAST_WAIT_SECONDS
    for thread in list(_connecting):
        thread.join(max(0.0, until - time.monotonic()))


def _connect(
    number: int, rank: int, size: int, address: str, meeting: MeetingPoint, given_up: threading.Event
) -> Any:
    host, port = address.rsplit(":", 1)
    own_host = meeting.address.rsplit(":", 1)[0]
    # A connection of its own, also to the own store: a thread in an abandoned wait blocks all others on its connection.
    store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_MEETING)
    round_store = dist.PrefixStore(f"round-{number}", store)
    _meet(round_store, rank, size, given_up)
    store.set_timeout(_CONNECTING)
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=own_host)]
    options._timeout = _PATIENCE
    # One thread a collective under way: two keep the line busy while the next bucket is being filled.
    options._threads = 2
    return dist.ProcessGroupGloo(round_store, rank, size, options)


def _meet(store: Any, rank: int, size: int, given_up: threading.Event) -> None:
    """Returns when all members have come to the store. Raises `GroupBroken`."""
    store.set(f"here-{rank}", "")
    members = [f"here-{each}" for each in range(size)]
    until = time.monotonic() + _MEETING.total_seconds()
    while not store.check(members):
        if given_up.wait(_MEETING_GLANCE_SECONDS):
            raise GroupBroken("another round has begun")
        if time.monotonic() > until:
            raise GroupBroken(f"not all {size} members of the round have come")


def connect_gpus(*, group: Group, address: str, device: Any) -> Any:
    """NCCL among the members of a group; `device` is the GPU of this one."""
    # By itself it ends the process when a peer has died. Here the next round is met instead.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    host, port = address.rsplit(":", 1)
    store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_MEETING)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = _PATIENCE
    backend = dist.ProcessGroupNCCL(
        dist.PrefixStore(f"round-{group.number}-gpus", store), group.rank, group.size, options
    )
    with torch.cuda.device(device):
        # It connects with its first collective, which blocks its thread: here that is not the training thread.
        backend.allreduce([torch.zeros(1, device=device)]).wait()
        torch.cuda.synchronize(device)
    return backend


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def as_bytes(tensor: Any) -> Any:
    """The memory of a tensor, as every backend can send it."""
    return tensor.view(-1).view(torch.uint8)
