"""All-reduce after a recovery whose journal lacks even the announcement of the data set: the job ends and says why."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest

from elasticai_api.proto import allreduce_pb2 as pb
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.recovery import StartReclaim
from elasticdl.master.master import Master
from elasticdl.master.services.allreduce_service import AllReduceService
from tests.master.conftest import Nowhere


class Aborted(Exception):
    """The call was answered with an error."""


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(details)


@pytest.fixture
def master(tmp_path: Path) -> Master:
    (tmp_path / "journal").mkdir()
    spec = JobSpec.build(
        job_name="team",
        model_zoo="z",
        model_def="a.b.c",
        training_data="d",
        distribution_strategy="AllreduceStrategy",
        num_workers=2,
    )
    made = Master(spec=spec, folder=tmp_path, platform=Nowhere(), token="t", environment={})
    made.recover()
    made.do(JoinNode(node="worker-0", incarnation="i", address=""))
    return made


async def _advance(master: Master) -> None:
    context: Any = Context()
    request = pb.AdvanceRequest(
        worker="worker-0", generation=master.state.generation, dataset="training", step=3, report_id=1
    )
    with pytest.raises(Aborted):
        await AllReduceService(master).Advance(request, context)


def test_step_of_an_unknown_data_set_after_a_recovery_ends_the_job(master: Master) -> None:
    master.do(StartReclaim(lineage=uuid.uuid4().hex, saved=None))

    async def advance_and_run() -> None:
        await _advance(master)
        await master.run()

    with pytest.raises(UserError, match="its beginning is lost"):
        asyncio.run(advance_and_run())


def test_step_of_an_unknown_data_set_without_a_recovery_is_only_rejected(master: Master) -> None:
    asyncio.run(_advance(master))
    assert master._cannot_go_on is None
