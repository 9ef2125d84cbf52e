"""A master killed before it released a snapshot of the model releases it after its restart; snapshots in use stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.checkpointing.snapshot_collector import SnapshotCollector, is_left_over
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.job_state import JobState
from elasticdl.master.master import Master
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import NodePhase, NodeStatus
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

TOKEN = "a token for tests"
SPEC = JobSpec.build(
    kind="train",
    model_zoo="zoo",
    model_def="m.m.custom_model",
    training_data="data",
    job_name="forgetful",
    num_workers=1,
    num_ps=1,
)


@pytest.fixture
def store() -> Store:
    made = Store(ServerSettings())
    made.close(1)
    made.peers.update_routes(Routes(map=first_map(1)))
    made.open()
    initial = InitialModel(
        trainable={"x": np.ones(2, np.float32)},
        state={},
        optimizer=ps_pb2.OptimizerConfig(name="sgd", flavor="keras"),
    )
    made.workers.initialize(initial, generation=1)
    return made


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    server = ParameterServer(token=TOKEN)
    server.serve(store)
    yield server.address
    server.stop()


@pytest.fixture
def platform(nowhere: Any) -> Any:
    async def nodes() -> list[NodeStatus]:
        return [NodeStatus(name="ps-0", role="ps", phase=NodePhase.RUNNING)]

    nowhere.nodes = nodes
    return nowhere


def test_after_a_kill(store: Store, address: str, platform: Any, tmp_path: Path) -> None:
    store.master.freeze("barrier-1", generation=1)
    store.master.freeze("barrier-2", generation=1)

    def master() -> Master:
        return Master(spec=SPEC, folder=tmp_path, platform=platform, token=TOKEN, environment={})

    async def killed() -> None:
        before = master()
        before.recover()
        before.do(JoinNode(node="ps-0", incarnation="one", address=address))
        # As far as that goes before the first is released, and while the second is being frozen.
        before.state.cycle.skip_numbers(1)
        before._journal.compact(before.state.snapshot())
        before._journal.close()
        before._events.close()

    async def comes_back() -> None:
        released, loop = asyncio.Event(), asyncio.get_running_loop()
        release = store.master.release

        def tell(name: str) -> None:
            release(name)
            loop.call_soon_threadsafe(released.set)

        store.master.release = tell  # type: ignore[method-assign]
        after = master()
        after.recover()
        running = asyncio.create_task(after.run())
        try:
            await asyncio.wait_for(released.wait(), 60)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(killed())
    asyncio.run(comes_back())
    assert store.master.status().frozen == ("barrier-2",)


def test_a_server_that_does_not_answer_is_asked_again(store: Store, address: str) -> None:
    store.master.freeze("barrier-1", generation=1)
    addresses = {0: "127.0.0.1:1"}
    state = SimpleNamespace(
        is_recovering=False,
        placing=SimpleNamespace(addresses=lambda: addresses),
        cycle=SimpleNamespace(passed=1, pending=None),
        evaluation=None,
    )
    master: Any = SimpleNamespace(state=state)

    async def look() -> None:
        servers = Coordinator(TOKEN)
        leftovers = SnapshotCollector(master, servers)
        await leftovers.look()
        assert store.master.status().frozen == ("barrier-1",)
        addresses[0] = address
        state.is_recovering = True
        await leftovers.look()
        assert store.master.status().frozen == ("barrier-1",)
        state.is_recovering = False
        await leftovers.look()
        await servers.close()

    asyncio.run(look())
    assert store.master.status().frozen == ()


def test_snapshot_in_use_is_no_leftover(toy_job: Callable[..., Any]) -> None:
    """At every moment of a job: a snapshot is needed from before its barrier passes until it is saved and evaluated."""
    plan = JobSettings(
        workers=2,
        servers=1,
        batch_size=4,
        shard_size=8,
        evaluates=True,
        saves=True,
        checkpoint_steps=3,
        evaluation_steps=4,
    )
    job = toy_job(plan, sizes={"training": 40, "evaluation": 8})
    seen: set[str] = set()

    def look() -> None:
        state: JobState = job.state
        needed = {
            number
            for number in (
                state.barrier and state.barrier.number,
                state.cycle.pending and state.cycle.pending.barrier,
                state.evaluation and state.evaluation.number,
            )
            if number
        }
        for barrier in range(1, state.cycle.passed + 3):
            kept = barrier in needed or barrier > state.cycle.passed
            assert is_left_over(state, f"barrier-{barrier}") == (not kept)
            seen.add("kept" if barrier in needed else "left")
        assert not is_left_over(state, "another job's")
        assert not is_left_over(state, "barrier-x")

    job.run(chaos=look)
    assert seen == {"kept", "left"}
