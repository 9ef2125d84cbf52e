"""The data-shard calls over a real connection: which calls block, when the end is sent, answers to invalid calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticai_api.proto import progress_pb2
from elasticai_api.proto.elasticai_api_pb2_grpc import MasterStub, add_MasterServicer_to_server
from elasticai_api.proto.progress_pb2_grpc import ProgressStub, add_ProgressServicer_to_server
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.master import Master
from elasticdl.master.services.shard_fetches import ShardFetches
from elasticdl.master.services.shard_service import NON_FINITE_LOSS, SEPARATE_MODELS, ShardService
from elasticdl.platforms.platform import NodePhase, Platform
from tests.master.node_statuses import node_status


@pytest.fixture
def master(tmp_path: Path, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(job_name="shards", job_command="true", num_workers=2)
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={})
    made.recover()
    for node in list(made.state.roster.nodes.values()):
        run(made, node.name)
    yield made
    made._journal.close()
    made._events.close()


def run(master: Master, name: str, *, phase: NodePhase = NodePhase.RUNNING, reason: str = "") -> None:
    status = {"name": name, "role": name.split("-")[0], "phase": phase.value, "reason": reason}
    master.do(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))


class Client:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.shards: Any = MasterStub(channel)  # type: ignore[no-untyped-call]
        self.progress: Any = ProgressStub(channel)  # type: ignore[no-untyped-call]

    async def announce(self, **changes: Any) -> None:
        said = {"batch_size": 2, "num_epochs": 1, "dataset_size": 6, "num_minibatches_per_shard": 1}
        request = pb.ReportDatasetShardParamsRequest(
            **{**said, "dataset_name": "d", "task_type": 1, **changes}
        )
        await self.shards.report_dataset_shard_params(request)

    def fetch(self, worker: int, *, request: int = 0) -> Awaitable[pb.Task]:
        metadata = [("elasticai-request", str(request))] if request else None
        asked = pb.GetDatasetTaskRequest(worker_id=worker, dataset_name="d", worker_type="worker")
        return self.shards.get_dataset_task(asked, metadata=metadata)  # type: ignore[no-any-return]

    async def done(self, task: pb.Task, error: str = "") -> None:
        request = pb.ReportDatasetTaskResultRequest(task_id=task.task_id, dataset_name="d", err_message=error)
        await self.shards.report_dataset_task_result(request)

    async def moved(self, worker: int, task: pb.Task, position: int) -> list[int]:
        moved = progress_pb2.ShardProgress(task_id=task.task_id, position=position, batches=1)
        request = progress_pb2.ProgressRequest(
            worker_id=worker, worker_type="worker", dataset_name="d", shards=[moved]
        )
        return list((await self.progress.Report(request)).lost)


@asynccontextmanager
async def serving(master: Master) -> AsyncIterator[Client]:
    server = grpc.aio.server()
    service = ShardService(master, ShardFetches(master.state.ledger.is_leased))
    add_MasterServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    add_ProgressServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Client(channel)
    finally:
        await server.stop(None)


def converse(master: Master, what: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with serving(master) as client:
            await what(client)

    asyncio.run(main())


async def held(master: Master, call: Awaitable[pb.Task]) -> asyncio.Future[pb.Task]:
    """A call that the master has received and does not answer."""
    future = asyncio.ensure_future(call)
    while not master.work:
        assert not future.done()
        await asyncio.sleep(0)
    return future


def test_shards_come_in_order_and_end(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        found = []
        while (task := await client.fetch(0)).type == pb.TRAINING:
            found.append((task.shard.start, task.shard.end))
            await client.done(task)
        assert found == [(0, 2), (2, 4), (4, 6)]
        assert master.state.ledger.finished("d")
        assert task == pb.Task(type=pb.NONE)

    converse(master, talk)


def test_fetch_without_free_shard_blocks_until_one_is_requeued(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce(dataset_size=2)
        theirs = await client.fetch(1)
        waiting = await held(master, client.fetch(0))
        run(master, "worker-1", phase=NodePhase.FAILED, reason="killed")
        assert (await waiting).shard.start == theirs.shard.start

    converse(master, talk)


def test_waiting_fetch_gets_the_end_when_another_worker_has_done_the_rest(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce(dataset_size=2)
        theirs = await client.fetch(1)
        waiting = await held(master, client.fetch(0))
        await client.done(theirs)
        assert (await waiting).type == pb.NONE

    converse(master, talk)


def test_a_call_made_again_under_its_number_gets_the_same_shard(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        first = await client.fetch(0, request=1)
        assert (await client.fetch(0, request=1)) == first
        assert (await client.fetch(0, request=2)).shard.start == 2

    converse(master, talk)


def test_only_the_rest_of_a_shard_goes_to_another(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce(num_minibatches_per_shard=3)
        task = await client.fetch(0)
        assert await client.moved(0, task, 4) == []
        run(master, "worker-0", phase=NodePhase.FAILED, reason="killed")
        rest = await client.fetch(1)
        assert (rest.shard.start, rest.shard.end) == (4, 6)
        assert await client.moved(0, task, 6) == [task.task_id]

    converse(master, talk)


def test_shuffled_records_are_listed_and_count_only_together(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce(num_minibatches_per_shard=3, shuffle=True)
        task = await client.fetch(0)
        assert sorted(task.shard.indices) == [0, 1, 2, 3, 4, 5]
        await client.moved(0, task, 4)
        assert master.state.ledger.samples_done("d") == 0
        await client.moved(0, task, 6)
        assert master.state.ledger.samples_done("d") == 6

    converse(master, talk)


def test_two_sizes_of_one_data_set_fail_the_job(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.announce(dataset_size=7)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "7 samples for one worker and 6 for another" in master.state.message

    converse(master, talk)


@pytest.mark.parametrize(
    "change", [{"dataset_size": 0}, {"dataset_size": 2**63 - 1}, {"batch_size": 0}, {"remainder": "keep"}]
)
def test_an_impossible_data_set_fails_the_job(master: Master, change: dict[str, Any]) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.announce(**change)
        assert master.state.outcome == "failed"
        assert "Data set d" in master.state.message

    converse(master, talk)


def test_unannounced_data_set_is_refused(master: Master) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="The data set d is not announced"):
            await client.fetch(0)

    converse(master, talk)


def test_reports_of_what_was_never_given_change_nothing(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        await client.done(pb.Task(task_id=77))
        assert await client.moved(0, pb.Task(task_id=77), 1) == [77]
        assert master.state.ledger.samples_done("d") == 0
        assert not master.state.outcome

    converse(master, talk)


def test_a_position_outside_of_the_shard_is_refused(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        task = await client.fetch(0)
        with pytest.raises(grpc.aio.AioRpcError, match="lies outside of shard"):
            await client.moved(0, task, 5)

    converse(master, talk)


def test_strangers_and_dead_workers_get_the_end(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        assert (await client.fetch(99)).type == pb.NONE
        run(master, "worker-0", phase=NodePhase.FAILED, reason="killed")
        assert (await client.fetch(0)).type == pb.NONE

    converse(master, talk)


def test_a_shard_that_keeps_failing_fails_the_job_with_the_error_of_the_program(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        while not master.state.outcome:
            await client.done(await client.fetch(0), "cannot decode")
        assert "cannot decode" in master.state.message

    converse(master, talk)


def test_checkpoints_of_shards(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        epoch = await client.shards.get_dataset_epoch(pb.GetDatasetEpochRequest(dataset_name="d"))
        assert epoch.epoch == 0
        await client.fetch(0)
        kept = await client.shards.get_shard_checkpoint(pb.GetShardCheckpointRequest(dataset_name="d"))
        await client.done(await client.fetch(0))
        assert (await client.shards.report_shard_checkpoint(kept)).success
        assert (await client.fetch(0)).shard.start == 0
        nonsense = pb.ShardCheckpoint(content="{")
        assert not (await client.shards.report_shard_checkpoint(nonsense)).success
        epoch = await client.shards.get_dataset_epoch(pb.GetDatasetEpochRequest(dataset_name="d"))
        assert epoch.epoch == 1

    converse(master, talk)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_reported_loss_that_is_not_finite_adds_a_remark_once(master: Master, loss: float) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        for step, value in ((1, 0.5), (2, loss), (3, loss)):
            request = progress_pb2.ProgressRequest(
                worker_id=0, worker_type="worker", dataset_name="d", global_step=step, loss=value
            )
            await client.progress.Report(request)
        assert master.state.remarks == [f"{NON_FINITE_LOSS} The first: step 2 of worker-0."]
        assert [value for _, value in master.losses] == [0.5]

    converse(master, talk)


def test_second_worker_with_training_data_adds_a_remark(master: Master) -> None:
    async def talk(client: Client) -> None:
        await client.announce()
        await client.fetch(0)
        assert master.state.remarks == []
        await client.fetch(1)
        assert master.state.remarks == [SEPARATE_MODELS]

    converse(master, talk)
