"""A pause is over for who has heard so, also if a new round is met with one who has not: that one will hear it too, and
waits for the others then.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import torch

from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.proto.allreduce_pb2_grpc import AllReduceServicer, add_AllReduceServicer_to_server
from elasticai_api.pytorch.group import MeetingPoint
from elasticai_api.pytorch.place import MicroBatch
from elasticai_api.pytorch.standings import Line
from elasticai_api.pytorch.team import Team

_PAUSE = 1


class Master(AllReduceServicer):
    """Makes a round of two on demand."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._addresses: dict[str, str] = {}
        self._round = 0

    def begin_round(self) -> None:
        with self._moved:
            self._moved.wait_for(lambda: len(self._addresses) == 2)
            self._round += 1
            self._moved.notify_all()

    def Gather(self, request: pb.GatherRequest, context: grpc.ServicerContext) -> Iterator[pb.Standing]:
        with self._moved:
            self._addresses[request.worker] = request.address
            self._moved.notify_all()
        seen = 0
        while context.is_active():
            with self._moved:
                if not self._moved.wait_for(lambda seen=seen: self._round > seen, 0.1):  # type: ignore[misc]
                    continue
                seen = self._round
                members = [
                    pb.Member(worker=name, address=address)
                    for name, address in sorted(self._addresses.items())
                ]
            yield pb.Standing(
                round=seen,
                members=members,
                generation=1,
                size=1000,
                batch_size=1,
                epochs=1,
                per_step=2,
                open_epochs=1,
                fresh=seen == 1,
            )

    def Synced(self, request: pb.SyncedRequest, context: Any) -> pb.SyncedReply:
        return pb.SyncedReply()

    def Advance(self, request: pb.AdvanceRequest, context: Any) -> pb.AdvanceReply:
        return pb.AdvanceReply()

    def Waiting(self, request: pb.WaitingRequest, context: Any) -> pb.WaitingReply:
        return pb.WaitingReply()

    def Broken(self, request: pb.BrokenRequest, context: Any) -> pb.BrokenReply:
        return pb.BrokenReply()

    def Order(self, request: pb.OrderRequest, context: Any) -> pb.OrderReply:
        return pb.OrderReply(starts=range(request.first, request.first + request.count))


class OneNumber:
    """The least that can be trained."""

    def __init__(self) -> None:
        self.value = torch.zeros(1, requires_grad=True)
        self.value.grad = torch.ones(1)

    def start(self, restore_from: str) -> None:
        pass

    def parameters(self) -> list[Any]:
        return [self.value]

    def buffers(self) -> list[Any]:
        return []

    def read(self) -> tuple[dict[str, Any], Any]:
        return {"value": self.value.detach()}, None

    def write(self, tensors: dict[str, Any], rest: Any) -> None:
        self.value.data.copy_(tensors["value"])

    def apply(self) -> None:
        pass


class Member:
    def __init__(self, name: str, address: str) -> None:
        self.knows_the_end = False
        self.news = threading.Event()
        self.line = Line(address=address, token="token", worker=name)
        self.team = Team(
            line=self.line,
            meeting=MeetingPoint("127.0.0.1"),
            dataset="numbers",
            generation=1,
            replica=OneNumber(),
            wants_pause=lambda: 0 if self.knows_the_end else _PAUSE,
            pause_is_over=lambda number: self.knows_the_end,
            changed=self.news.set,
        )

    def step(self) -> None:
        assert self.team.next() is not None
        assert self.team.done(samples=1, loss=0.0)

    def fail_step_and_look(self) -> MicroBatch | None:
        """Something new, after a step that is given up."""
        assert self.team.next() is not None
        assert not self.team.done(samples=1, loss=0.0)
        return self.team.next()

    def close(self) -> None:
        self.team.close()
        self.line.close()


@contextlib.contextmanager
def running(master: Master) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(8))
    add_AllReduceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


@contextlib.contextmanager
def two_members(address: str) -> Iterator[list[Member]]:
    members = [Member(name, address) for name in ("worker-0", "worker-1")]
    try:
        yield members
    finally:
        for member in members:
            member.close()


def scenario() -> None:
    master = Master()
    # Threads end after the members have: what still waits for one of them ends with it.
    with running(master) as address, ThreadPoolExecutor(2) as pool, two_members(address) as members:
        early, late = members
        master.begin_round()
        for stepped in [pool.submit(member.step) for member in members]:
            stepped.result()
        assert [member.team.next() for member in members] == [None, None]
        assert all(member.team.halted for member in members)

        early.knows_the_end = True
        master.begin_round()
        for member in members:
            wait_for_round(member, 2)
        # One is in the next step already, without a peer to add up with: the other one joins the new round only.
        next_of_early = pool.submit(early.fail_step_and_look)
        assert pool.submit(late.team.next).result() is None
        late.knows_the_end = True
        stepped_too = pool.submit(late.step)
        assert next_of_early.result() is not None
        stepped_too.result()


def wait_for_round(member: Member, number: int) -> None:
    while member.team.standing().round != number:
        assert member.news.wait(60)
        member.news.clear()


def test_member_that_knows_the_end_of_a_pause_goes_on() -> None:
    # In a process of its own: tests that fork must not find the threads of its connections.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    scenario()
