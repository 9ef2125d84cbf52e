"""Nodes that wait for room: which of them requests it, and which need not wait for others."""

from __future__ import annotations

import asyncio

from elasticdl.platforms.kubernetes.quota_queue import QuotaQueue
from elasticdl.platforms.platform import NodeRequest


def request(name: str, memory_doublings: int = 0) -> NodeRequest:
    role = name.rpartition("-")[0]
    return NodeRequest(name=name, role=role, command=("x",), memory_doublings=memory_doublings)


class Namespace:
    """With room for some."""

    def __init__(self, *rooms: str) -> None:
        self.rooms = rooms

    def asked(self, *requests: NodeRequest, times: int) -> list[str]:
        """The order of the first requests, when they queue in this order."""
        asked: list[str] = []
        enough = asyncio.Event()

        async def attempt(request: NodeRequest) -> bool:
            asked.append(request.name)
            if len(asked) == times:
                enough.set()
            return request.name in self.rooms

        async def run() -> None:
            line = QuotaQueue(attempt, seconds=0)
            for each in requests:
                line.join(each)
            running = asyncio.create_task(line.run())
            await asyncio.wait_for(enough.wait(), 60)
            running.cancel()

        asyncio.run(run())
        return asked[:times]


def test_one_that_needs_less_does_not_wait_for_one_that_needs_more() -> None:
    large, small = request("worker-7", memory_doublings=1), [request("worker-8"), request("worker-9")]
    asked = Namespace("worker-8", "worker-9").asked(large, *small, times=4)
    assert asked == ["worker-7", "worker-8", "worker-9", "worker-7"]


def test_of_those_that_need_the_same_only_the_first_asks() -> None:
    workers = [request(f"worker-{number}") for number in range(5)]
    asked = Namespace("ps-1").asked(*workers, request("ps-1"), times=4)
    assert asked == ["worker-0", "ps-1", "worker-0", "worker-0"]
