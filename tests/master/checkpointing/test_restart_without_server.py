"""The model is lost, and one of the parameter servers is missing: after a timeout the others restart without it."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ScaleRole
from elasticdl.master.servers.rebalancer import Rebalancer
from elasticdl.master.servers.server_metrics import ServerFigures
from elasticdl.master.settings import JobSettings
from elasticdl.wire import ps_pb2

MEBI = 1 << 20
# Of a limit of 128 MiB.
ROOM = 96 * MEBI


class NoAnswer:
    """Servers that say nothing of how busy they are."""

    async def status_all(self, addresses: Any) -> dict[int, ps_pb2.ServerStatusReply]:
        return {}


def join(job: Any, name: str) -> None:
    number = job.state.roster.nodes[name].number
    job.do(JoinNode(node=name, incarnation=f"i-{name}", address=f"here:{number}"))


@pytest.fixture
def job(toy_job: Any) -> Any:
    """A job that is to have three servers instead of two, has no place for the third, and loses both that it had."""
    job = toy_job(JobSettings(servers=2, replicas=2, workers=1, batch_size=5, shard_size=10))
    job.start_nodes()
    job.do(ScaleRole(role="ps", target=3))
    job.end("ps-0")
    job.end("ps-1")
    assert job.state.generation == 2
    assert [node.name for node in job.state.roster.wanted()] == ["ps-2", "ps-3", "ps-4"]
    return job


@pytest.fixture
def moving(job: Any) -> Rebalancer:
    spec = JobSpec.build(
        model_zoo="zoo",
        model_def="m.m.custom_model",
        training_data="data",
        num_ps=2,
        ps_resource_limit="memory=128Mi",
    )
    master: Any = SimpleNamespace(
        state=job.state, do=job.do, spec=spec, plan=job.plan, figures=ServerFigures()
    )
    return Rebalancer(master, NoAnswer(), lambda: 0.0)  # type: ignore[arg-type]


def look(moving: Rebalancer, *times: float) -> None:
    for now in times:
        asyncio.run(moving.look(now))


def servers(job: Any) -> set[int]:
    placed: set[int] = job.state.placing.map.servers
    return placed


def test_missing_server_is_left_out_of_map_after_timeout(job: Any, moving: Rebalancer) -> None:
    join(job, "ps-3")
    join(job, "ps-4")
    look(moving, 0.0, 59.0)
    assert job.state.placing.map is None, "it may yet come"
    look(moving, 61.0)
    assert servers(job) == {0, 1}
    assert job.replayed().placing.map == job.state.placing.map


def test_late_server_gets_buckets_when_it_joins(job: Any, moving: Rebalancer) -> None:
    join(job, "ps-3")
    join(job, "ps-4")
    look(moving, 0.0, 61.0)
    join(job, "ps-2")
    assert set(job.state.placing.map.migrating.values()) == {2}


def test_model_does_not_begin_without_servers(job: Any, moving: Rebalancer) -> None:
    look(moving, 0.0, 61.0)
    join(job, "ps-3")
    assert job.state.placing.map is None
    look(moving, 62.0, 124.0)
    assert servers(job) == {0}


def test_not_where_there_is_no_room(job: Any, moving: Rebalancer, caplog: pytest.LogCaptureFixture) -> None:
    table = ps_pb2.TableFigures(table="t", rows=1, bytes=2 * ROOM)
    reply = ps_pb2.ServerStatusReply(figures=ps_pb2.Figures(seconds=1.0, tables=[table]))
    moving._job.figures.take({0: reply}, {0: "ps-0"})
    join(job, "ps-3")
    with caplog.at_level(logging.WARNING, logger="elasticdl.master"):
        look(moving, 0.0, 61.0, 62.0)
    assert job.state.placing.map is None
    assert len([record for record in caplog.records if "no room" in record.getMessage()]) == 1


def test_replicated_bytes_count_once_for_required_memory(job: Any, moving: Rebalancer) -> None:
    job.start_nodes()
    look(moving, 0.0)
    # Of 0.6 of what one has room for, in two copies, a third is on each.
    table = ps_pb2.TableFigures(table="t", rows=1, bytes=int(0.4 * ROOM))
    reply = ps_pb2.ServerStatusReply(figures=ps_pb2.Figures(seconds=1.0, tables=[table]))
    moving._job.figures.take(dict.fromkeys(range(3), reply), {n: f"ps-{n + 2}" for n in range(3)})
    job.end("ps-2")
    job.end("ps-3")
    assert [node.name for node in job.state.roster.wanted()] == ["ps-5", "ps-6"]
    join(job, "ps-6")
    look(moving, 1.0, 62.0)
    assert servers(job) == {0, 1}


def test_lost_model_starts_a_new_timeout(
    job: Any, moving: Rebalancer, caplog: pytest.LogCaptureFixture
) -> None:
    """One is missing, the others have no room for what it held, and so the next loss is that of the model."""
    job.start_nodes()
    table = ps_pb2.TableFigures(table="t", rows=1, bytes=ROOM)
    reply = ps_pb2.ServerStatusReply(figures=ps_pb2.Figures(seconds=1.0, tables=[table]))
    moving._job.figures.take(dict.fromkeys(range(3), reply), {n: f"ps-{n + 2}" for n in range(3)})
    with caplog.at_level(logging.WARNING, logger="elasticdl.master"):
        job.end("ps-2")
        look(moving, 0.0, 11.0, 100.0)
        job.end("ps-3")
        assert job.state.placing.map is None
        look(moving, 101.0, 160.0)
        assert "it is waited for" not in caplog.text
        look(moving, 161.0, 162.0)
    assert caplog.text.count("it is waited for") == 1


def test_a_job_that_begins_waits_for_all(toy_job: Any) -> None:
    job = toy_job(JobSettings(servers=2, replicas=2, workers=1, batch_size=5, shard_size=10))
    join(job, "ps-0")
    assert not job.state.placing.waits
