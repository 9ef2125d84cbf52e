"""Calls in the name of a node that the job has not are rejected, and fail nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.master import Master
from elasticdl.master.services.endpoints import Servers
from elasticdl.platforms.platform import Platform
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import add_port, open_aio_channel
from elasticdl.wire.master_pb2_grpc import MasterStub

TOKEN = "t"
UNKNOWN = "worker-99"


@pytest.fixture
def master(tmp_path: Path, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(job_name="known", model_zoo="zoo", model_def="a.b.c", training_data="data")
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token=TOKEN, environment={})
    made.recover()
    made.do(JoinNode(node="worker-0", incarnation="i", address="here"))
    made.do(AnnounceDataset(dataset="training", size=100))
    yield made
    made._journal.close()
    made._events.close()


def code_of(master: Master, method: str, request: Any) -> grpc.StatusCode:
    async def main() -> grpc.StatusCode:
        servers = Servers(master, TOKEN)
        port = add_port(servers.own, "127.0.0.1:0")
        await servers.start()
        try:
            async with open_aio_channel(f"127.0.0.1:{port}", TOKEN) as channel:
                await getattr(MasterStub(channel), method)(request)  # type: ignore[no-untyped-call]
        except grpc.aio.AioRpcError as error:
            return error.code()
        finally:
            await servers.stop()
        return grpc.StatusCode.OK

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Announce", pb.AnnounceRequest(node=UNKNOWN, dataset="training", size=7)),
        ("ReachBarrier", pb.ReachBarrierRequest(node=UNKNOWN, barrier=1, error="the disk is full")),
        ("Fail", pb.FailRequest(node=UNKNOWN, kind="definition", message="no")),
        ("Report", pb.ReportRequest(node=UNKNOWN, generation=1, stop_training=True)),
        ("FinishTask", pb.FinishTaskRequest(node=UNKNOWN, task="export")),
        ("Remark", pb.RemarkRequest(node=UNKNOWN, remarks=["hello"])),
        ("Tell", pb.TellRequest(node=UNKNOWN, sizes={"training": 3})),
    ],
)
def test_call_of_an_unknown_node_is_rejected(master: Master, method: str, request_: Any) -> None:
    before = master.state.snapshot()
    assert code_of(master, method, request_) is grpc.StatusCode.NOT_FOUND
    assert master.state.outcome == ""
    assert master.state.snapshot() == before


def test_call_of_a_known_node_is_taken(master: Master) -> None:
    request = pb.AnnounceRequest(node="worker-0", dataset="training", size=100)
    assert code_of(master, "Announce", request) is grpc.StatusCode.OK
