"""The port without a token: invalid calls are refused and reported, and do not fail the job."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticai_api.proto.elasticai_api_pb2_grpc import MasterStub
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.ledger.ledger import Lease
from elasticdl.master.master import Master
from elasticdl.master.services.endpoints import Servers
from elasticdl.master.services.shard_fetches import ShardFetches
from elasticdl.master.services.shard_service import RESTORED
from elasticdl.platforms.platform import NodePhase, Platform
from elasticdl.wire.channel import add_port, open_aio_channel
from tests.master.node_statuses import node_status

GOOD: dict[str, Any] = {
    "batch_size": 2,
    "num_epochs": 1,
    "dataset_size": 6,
    "dataset_name": "d",
    "task_type": 1,
}
TOKEN = "t"


@pytest.fixture
def master(tmp_path: Path, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(job_name="shards", job_command="true", num_workers=2)
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token=TOKEN, environment={})
    made.recover()
    for node in list(made.state.roster.nodes.values()):
        status = {"name": node.name, "role": "worker", "phase": NodePhase.RUNNING.value, "reason": ""}
        made.do(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
    yield made
    made._journal.close()
    made._events.close()


def converse(master: Master, what: Callable[[Any, Any], Awaitable[None]]) -> None:
    """With a stub for each port: the one with a token, and the public one."""

    async def main() -> None:
        servers = Servers(master, TOKEN)
        assert servers.public is not None
        own = add_port(servers.own, "127.0.0.1:0")
        public = servers.public.add_port("127.0.0.1:0")
        await servers.start()
        try:
            async with (
                open_aio_channel(f"127.0.0.1:{own}", TOKEN) as with_token,
                grpc.aio.insecure_channel(f"127.0.0.1:{public}") as without,
            ):
                await what(MasterStub(with_token), MasterStub(without))  # type: ignore[no-untyped-call]
        finally:
            await servers.stop()

    asyncio.run(main())


async def announce(stub: Any, **changes: Any) -> None:
    await stub.report_dataset_shard_params(pb.ReportDatasetShardParamsRequest(**{**GOOD, **changes}))


@pytest.mark.parametrize("change", [{"dataset_size": 7}, {"remainder": "keep"}])
def test_a_bad_announcement_without_a_token_is_refused_and_the_job_goes_on(
    master: Master, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    async def talk(own: Any, public: Any) -> None:
        await announce(public)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await announce(public, **change)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not master.state.outcome
        assert str(refused.value.details()) in caplog.text
        task = await public.get_dataset_task(
            pb.GetDatasetTaskRequest(worker_id=0, dataset_name="d", worker_type="worker")
        )
        assert task.type == pb.TRAINING

    caplog.set_level(logging.WARNING, "elasticdl.master")
    converse(master, talk)


def test_with_the_token_it_fails_the_job(master: Master) -> None:
    async def talk(own: Any, public: Any) -> None:
        await announce(public)
        with pytest.raises(grpc.aio.AioRpcError, match="7 samples for one worker and 6 for another"):
            await announce(own, dataset_size=7)
        assert master.state.outcome == "failed"

    converse(master, talk)


def test_worker_blocked_at_either_port_waits_for_shard(master: Master) -> None:
    async def held(stub: Any, worker: int) -> asyncio.Future[pb.Task]:
        request = pb.GetDatasetTaskRequest(worker_id=worker, dataset_name="d", worker_type="worker")
        call: asyncio.Future[pb.Task] = asyncio.ensure_future(stub.get_dataset_task(request))
        while not master.supervisor.waits_for_shard(f"worker-{worker}"):
            assert not call.done()
            await asyncio.sleep(0)
        return call

    async def talk(own: Any, public: Any) -> None:
        await announce(public, dataset_size=2, num_minibatches_per_shard=1)
        theirs = await public.get_dataset_task(
            pb.GetDatasetTaskRequest(worker_id=1, dataset_name="d", worker_type="worker")
        )
        # From the first call with the token on there are none without.
        for stub in (public, own):
            (await held(stub, 0)).cancel()
            while master.supervisor.waits_for_shard("worker-0"):
                await asyncio.sleep(0)
        await own.report_dataset_task_result(pb.ReportDatasetTaskResultRequest(task_id=theirs.task_id))

    converse(master, talk)


def test_report_for_a_shard_of_another_worker_is_rejected(master: Master) -> None:
    async def main() -> None:
        servers = Servers(master, TOKEN)
        assert servers.public is not None
        port = servers.public.add_port("127.0.0.1:0")
        await servers.start()
        # Each with a connection of its own, as two processes have.
        options = [("grpc.use_local_subchannel_pool", 1)]
        try:
            async with (
                grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as first,
                grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as second,
            ):
                owner, other = MasterStub(first), MasterStub(second)  # type: ignore[no-untyped-call]
                announcement = pb.ReportDatasetShardParamsRequest(**GOOD, num_minibatches_per_shard=1)
                await owner.report_dataset_shard_params(announcement)
                task = await owner.get_task(pb.GetTaskRequest(worker_id=0, dataset_name="d"))
                await other.get_task(pb.GetTaskRequest(worker_id=1, dataset_name="d"))
                report = pb.ReportTaskResultRequest(task_id=task.task_id)
                with pytest.raises(grpc.aio.AioRpcError) as rejected:
                    await other.report_task_result(report)
                assert rejected.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert master.state.ledger.lease_of(task.task_id) is not None
                await owner.report_task_result(report)
                assert master.state.ledger.lease_of(task.task_id) is None
        finally:
            await servers.stop()

    asyncio.run(main())


STRANGERS_CALLS: list[tuple[str, Any]] = [
    ("report_task_result", pb.ReportTaskResultRequest(task_id=1)),
    ("report_task_result", pb.ReportTaskResultRequest(task_id=1, err_message="cannot be read")),
    ("report_dataset_task_result", pb.ReportDatasetTaskResultRequest(task_id=1, dataset_name="d")),
    ("get_task", pb.GetTaskRequest(worker_id=0, dataset_name="d")),
    ("get_dataset_task", pb.GetDatasetTaskRequest(worker_id=1, worker_type="worker", dataset_name="d")),
    ("report_dataset_shard_params", pb.ReportDatasetShardParamsRequest(**{**GOOD, "dataset_name": "more"})),
    ("reset_dataset", pb.ResetDatasetRequest(dataset_name="d")),
]


def test_program_with_the_token_closes_the_port_for_calls_that_change_anything(master: Master) -> None:
    async def talk(own: Any, public: Any) -> None:
        await announce(own, num_minibatches_per_shard=1)
        task = await own.get_task(pb.GetTaskRequest(worker_id=0, dataset_name="d"))
        assert task.task_id == 1
        restored = await public.get_shard_checkpoint(pb.GetShardCheckpointRequest(dataset_name="d"))
        before = master.state.ledger.snapshot()
        for call, request in [*STRANGERS_CALLS, ("report_shard_checkpoint", restored)]:
            with pytest.raises(grpc.aio.AioRpcError) as rejected:
                await getattr(public, call)(request)
            assert rejected.value.code() is grpc.StatusCode.PERMISSION_DENIED, call
        assert master.state.ledger.snapshot() == before
        assert list(master.state.data.announced) == ["d"]
        await own.report_task_result(pb.ReportTaskResultRequest(task_id=task.task_id))
        assert master.state.ledger.lease_of(task.task_id) is None

    converse(master, talk)


def test_restored_checkpoint_of_a_program_without_the_token_is_in_the_audit(master: Master) -> None:
    """The caller may be anyone: a checkpoint can say that nothing is left to do."""

    async def talk(own: Any, public: Any) -> None:
        await announce(public, num_minibatches_per_shard=1)
        done = {"dataset_name": "d", "dataset_size": 6, "current_epoch": 1, "todo": [], "doing": []}
        reply = await public.report_shard_checkpoint(pb.ShardCheckpoint(content=json.dumps(done)))
        assert reply.success
        assert master.state.ledger.samples_done("d") == 6
        assert master.state.remarks == [RESTORED]

    converse(master, talk)


def test_unknown_names_and_long_messages_of_strangers_are_not_kept(master: Master) -> None:
    async def talk(own: Any, public: Any) -> None:
        await announce(public)
        reported = set(master.detector._reported)
        call = pb.GetDatasetTaskRequest(worker_id=7, worker_type="x" * 1_000_000, dataset_name="d")
        assert (await public.get_dataset_task(call)).type == pb.NONE
        assert master.detector._reported == reported
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await public.report_shard_checkpoint(pb.ShardCheckpoint(content="x" * (5 << 20)))
        assert rejected.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await announce(public, dataset_name="d" * 1001)
        assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        for number in range(99):
            await announce(public, dataset_name=f"d{number}")
        with pytest.raises(grpc.aio.AioRpcError) as rejected:
            await announce(public, dataset_name="one more")
        assert rejected.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert len(master.state.data.announced) == 100
        # Those that are there may be announced again.
        await announce(public)
        assert not master.state.outcome

    converse(master, talk)


@pytest.mark.parametrize(
    ("repeats_from", "reports_from", "accepted"),
    [
        ("ipv4:10.0.0.9:1", "ipv4:10.0.0.9:1", False),
        ("ipv4:10.0.0.9:1", "ipv4:10.0.0.1:1", True),
        ("ipv4:10.0.0.1:2", "ipv4:10.0.0.1:2", True),
    ],
)
def test_fetch_repeated_from_another_address_takes_no_shard_over(
    repeats_from: str, reports_from: str, accepted: bool
) -> None:
    lease = Lease(
        lease_id=1, dataset="d", worker="worker-0", epoch=0, start=0, end=2, failures=0, position=0, batches=0
    )
    fetches = ShardFetches({1: lease}.__contains__)
    fetches.note_call("worker-0", "ipv4:10.0.0.1:1")
    fetches.note_fetched([1], "ipv4:10.0.0.1:1")
    fetches.note_call("worker-0", repeats_from)
    fetches.note_fetched([1], repeats_from)
    assert fetches.may_report(lease, reports_from) is accepted
