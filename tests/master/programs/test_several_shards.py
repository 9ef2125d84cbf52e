"""Workers that fetch several shards at a time: how many they get, and what becomes of those that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticai_api.proto import progress_pb2
from elasticai_api.proto.progress_pb2_grpc import ProgressStub, add_ProgressServicer_to_server
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.commands.programs import OpenDataset, ReturnLeases
from elasticdl.master.commands.shards import LeaseShards
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.master import Master
from elasticdl.master.services.shard_fetches import ShardFetches
from elasticdl.master.services.shard_service import ShardService
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import NodePhase, Platform
from tests.master.node_statuses import node_status

SAID: dict[str, Any] = {"name": "d", "size": 100, "batch_size": 1, "epochs": 2, "minibatches_per_shard": 1}


def status(name: str, phase: NodePhase = NodePhase.RUNNING) -> dict[str, Any]:
    fields = {"name": name, "role": name.split("-")[0], "phase": phase.value, "reason": ""}
    return {**fields, "exit_code": None, "message": ""}


def job(*, workers: int = 2, **changes: Any) -> JobState:
    state = JobState(JobSettings(program="command", workers=workers))
    for node in state.roster.wanted():
        state.apply(ObserveNode(status=node_status(status(node.name))))
    state.apply(OpenDataset(announcement=DatasetAnnouncement(**{**SAID, **changes})))
    return state


def lease(state: JobState, worker: str, count: int) -> list[int]:
    command = LeaseShards(dataset="d", worker=worker, count=count, request_id=state.ledger.next_lease)
    return [lease.lease_id for lease in state.apply(command)]


def starts(state: JobState, worker: str) -> list[int]:
    return [lease.start for lease in state.ledger.held_by(worker)]


# -- how many ------------------------------------------------------------------------------------------------


def test_share_is_half_of_equal_part_of_remaining_samples() -> None:
    state = job()
    assert state.data.share("d") == 200 // (2 * 2)
    lease(state, "worker-0", 40)
    assert state.data.share("d") == (200 - 40) // (2 * 2)


def test_one_at_least() -> None:
    state = job(size=3, epochs=1)
    assert state.data.share("d") == 1
    lease(state, "worker-0", 3)
    assert state.data.share("d") == 1


def test_returned_leases_are_shared_again() -> None:
    state = job()
    mine = lease(state, "worker-0", 40)
    state.apply(ReturnLeases(worker="worker-0", lease_ids=mine))
    assert state.data.share("d") == 50


def test_share_is_divided_by_number_of_workers() -> None:
    state = job(workers=4)
    assert state.data.share("d") == 200 // (2 * 4)


# -- what comes back -----------------------------------------------------------------------------------------


def test_in_the_order_in_which_it_was_given_out() -> None:
    state = job()
    ids = lease(state, "worker-0", 5)
    state.apply(ReturnLeases(worker="worker-0", lease_ids=ids[2:]))
    lease(state, "worker-1", 4)
    assert starts(state, "worker-0") == [0, 1]
    assert starts(state, "worker-1") == [2, 3, 4, 5]
    assert state.ledger.check() == []


def test_leases_of_other_workers_cannot_be_returned() -> None:
    state = job()
    theirs = lease(state, "worker-1", 2)
    state.apply(ReturnLeases(worker="worker-0", lease_ids=[*theirs, 999]))
    assert starts(state, "worker-1") == [0, 1]


def test_given_back_is_not_failed() -> None:
    state = job()
    for _ in range(10):
        state.apply(ReturnLeases(worker="worker-0", lease_ids=lease(state, "worker-0", 1)))
    assert not state.outcome
    lease(state, "worker-0", 1)
    assert state.ledger.held_by("worker-0")[0].failures == 0


# -- over a connection ---------------------------------------------------------------------------------------


@pytest.fixture
def master(tmp_path: Path, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(job_name="shards", job_command="true", num_workers=2)
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={})
    made.recover()
    for node in list(made.state.roster.nodes.values()):
        made.do(ObserveNode(status=node_status(status(node.name))))
    made.do(OpenDataset(announcement=DatasetAnnouncement(**SAID)))
    yield made
    made._journal.close()
    made._events.close()


def ask(master: Master, *calls: tuple[str, Any, int]) -> list[Any]:
    """The answers to calls made one after the other."""

    async def talk() -> list[Any]:
        server = grpc.aio.server()
        service = ShardService(master, ShardFetches(master.state.ledger.is_leased))
        add_ProgressServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub: Any = ProgressStub(channel)  # type: ignore[no-untyped-call]
                return [
                    await getattr(stub, call)(request, metadata=[("elasticai-request", str(number))])
                    for call, request, number in calls
                ]
        finally:
            await server.stop(None)

    return asyncio.run(talk())


def fetch(count: int, number: int) -> tuple[str, Any, int]:
    request = progress_pb2.FetchRequest(worker_id=0, worker_type="worker", dataset_name="d", count=count)
    return "Fetch", request, number


def test_shards_come_with_their_epochs(master: Master) -> None:
    first, second = ask(master, fetch(3, 1), fetch(1000, 2))
    assert [(shard.task.shard.start, shard.epoch) for shard in first.shards] == [(0, 1), (1, 1), (2, 1)]
    assert len(second.shards) == (200 - 3) // (2 * 2)


def test_asked_again_under_the_same_number_the_same_shards_come(master: Master) -> None:
    first, again = ask(master, fetch(3, 1), fetch(3, 1))
    assert first == again
    assert len(starts(master.state, "worker-0")) == 3


@pytest.mark.parametrize("count", [0, -1])
def test_invalid_shard_count_fetches_one(master: Master, count: int) -> None:
    (answer,) = ask(master, fetch(count, 1))
    assert len(answer.shards) == 1


def test_done_and_given_back_in_one_report(master: Master) -> None:
    (answer,) = ask(master, fetch(3, 1))
    ids = [shard.task.task_id for shard in answer.shards]
    report = progress_pb2.ProgressRequest(
        worker_id=0,
        worker_type="worker",
        dataset_name="d",
        shards=[progress_pb2.ShardProgress(task_id=ids[0], position=1, batches=1)],
        given_back=ids[1:],
    )
    (answer,) = ask(master, ("Report", report, 0))
    assert list(answer.lost) == []
    assert master.state.ledger.samples_done("d") == 1
    assert master.state.ledger.to_do("d", 2) == [(1, 2), (2, 3)]
