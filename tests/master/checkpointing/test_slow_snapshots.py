"""The model is frozen by all servers together, which takes long if one hangs: nodes are started meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ScaleRole
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.master import Master
from elasticdl.platforms.platform import NodeRequest, Platform

SPEC = JobSpec.build(
    job_name="j", num_workers=1, num_ps=1, model_zoo="z", model_def="a.b.c", training_data="d"
)


class Servers:
    """That say when they have frozen the model, or that they have not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def freeze_all(self, addresses: Any, name: str, generation: int, **more: Any) -> None:
        self.asked.append(name)
        answer = await self.answers.get()
        if answer is not None:
            raise answer

    async def release_all(self, addresses: Any, name: str) -> None: ...

    async def status_all(self, addresses: Any, **more: Any) -> dict[int, Any]:
        return {}


def test_slow_snapshot_neither_repeats_nor_delays_node_starts(tmp_path: Path, nowhere: Platform) -> None:
    started: list[str] = []

    async def start(request: NodeRequest) -> None:
        started.append(request.name)

    nowhere.start = start  # type: ignore[method-assign]
    master = Master(spec=SPEC, folder=tmp_path, platform=nowhere, token="t", environment={})
    master.recover()

    async def reconcile() -> None:
        await asyncio.wait_for(master.reconcile(), 20)
        for _ in range(10):
            await asyncio.sleep(0)

    def is_at_barrier() -> bool:
        return master.state.barrier is not None

    async def take_snapshot() -> None:
        servers: Any = Servers()
        master.checkpointer._servers = master._asking._servers = servers
        await reconcile()
        for name in ("worker-0", "ps-0"):
            master.do(JoinNode(node=name, incarnation="i", address="here"))
        master.do(AnnounceDataset(dataset="training", size=100))
        master.state.cycle.request_barrier(evaluate=False, save=False)
        await reconcile()
        assert servers.asked == ["barrier-1"]
        master.do(ScaleRole(role="worker", target=2))
        await reconcile()
        assert "worker-1" in started
        assert servers.asked == ["barrier-1"]
        # It has failed: the next time it is tried again.
        nothing = grpc.aio.Metadata()
        servers.answers.put_nowait(
            grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "one hangs", None)
        )
        await reconcile()
        await reconcile()
        assert servers.asked == ["barrier-1", "barrier-1"]
        assert is_at_barrier()
        servers.answers.put_nowait(None)
        await reconcile()
        assert not is_at_barrier()
        assert master.state.cycle.passed == 1

    asyncio.run(take_snapshot())
    master._journal.close()
    master._events.close()
