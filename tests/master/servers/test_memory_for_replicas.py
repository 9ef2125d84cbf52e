"""A parameter server is missing: the others make new copies of what it held, if they have room for them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.servers.rebalancer import Rebalancer
from elasticdl.master.servers.server_metrics import ServerFigures
from elasticdl.master.settings import JobSettings
from elasticdl.ps.core.buckets import NO_SERVER
from elasticdl.wire import ps_pb2

MEBI = 1 << 20
# Of a limit of 128 MiB.
ROOM = 96 * MEBI


def watched(job: Any) -> Rebalancer:
    spec = JobSpec.build(
        model_zoo="zoo",
        model_def="m.m.custom_model",
        training_data="data",
        num_workers=2,
        num_ps=3,
        ps_resource_limit="memory=128Mi",
    )
    master: Any = SimpleNamespace(
        state=job.state, do=job.do, spec=spec, plan=job.plan, figures=ServerFigures(), job=job
    )
    return Rebalancer(master, SimpleNamespace(), lambda: 0.0)  # type: ignore[arg-type]


@pytest.fixture
def job(toy_job: Any) -> Any:
    """With three servers."""
    started = toy_job(JobSettings(servers=3, replicas=2, batch_size=5, shard_size=10))
    started.start_nodes()
    return started


@pytest.fixture
def moving(job: Any) -> Rebalancer:
    """Without the last server."""
    job.end("ps-2")
    return watched(job)


def report(moving: Rebalancer, bytes_each: int) -> None:
    table = ps_pb2.TableFigures(table="t", rows=1, bytes=bytes_each)
    reply = ps_pb2.ServerStatusReply(figures=ps_pb2.Figures(seconds=1.0, tables=[table]))
    names = {number: f"ps-{number}" for number in range(2)}
    moving._job.figures.take(dict.fromkeys(names, reply), names)


def wait(moving: Rebalancer) -> list[int]:
    """Longer than a server is waited for. Returns the servers that are being filled then."""

    async def look() -> None:
        # Up to the moment at which there is something to be asked of the servers.
        for now in range(12):
            if not moving._job.state.placing.moving:
                await moving.look(float(now))

    asyncio.run(look())
    placed = moving._job.state.placing.map
    assert placed is not None
    return sorted(set(placed.migrating.values()))


def test_servers_with_free_memory_make_new_copies(moving: Rebalancer) -> None:
    # Each has two thirds of all rows, and would have all of them.
    report(moving, ROOM * 2 // 3 - MEBI)
    assert wait(moving) == [0, 1]


def test_servers_without_free_memory_warn_once_and_wait(
    moving: Rebalancer, caplog: pytest.LogCaptureFixture
) -> None:
    report(moving, ROOM * 2 // 3 + MEBI)
    with caplog.at_level(logging.WARNING, logger="elasticdl.master"):
        assert wait(moving) == []
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1, "it is said once"
    assert "no room for new copies" in said[0]
    placed = moving._job.state.placing
    assert placed.waits
    spread = placed.report()
    assert spread is not None
    assert spread.without_backup > 0


def test_late_server_gets_the_missing_copies(moving: Rebalancer) -> None:
    report(moving, ROOM)
    wait(moving)
    moving._job.job.start_nodes()  # type: ignore[attr-defined]
    placed = moving._job.state.placing.map
    assert placed is not None
    assert NO_SERVER in placed.backup
    assert set(placed.migrating.values()) == {2}


def test_one_that_was_to_go_has_some(job: Any) -> None:
    job.end("ps-0")
    job.do(ScaleRole(role="ps", target=2))
    moving = watched(job)
    # One alone would just have room for everything, in one copy.
    report(moving, ROOM * 2 // 3 - MEBI)
    assert wait(moving) == [1, 2]
