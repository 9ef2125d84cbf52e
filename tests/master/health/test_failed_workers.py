"""A worker that has reported its own error and does not exit is killed: until then its shards are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.master import Master
from elasticdl.platforms.platform import Platform
from tests.master.fake_time import Clock


@pytest.fixture
def master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(
        job_name="failed",
        model_zoo="zoo",
        model_def="a.b.c",
        training_data="data",
        num_workers=2,
        num_ps=1,
        stall_factor=10,
        stall_floor_seconds=30,
    )
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}, clock=clock)
    made.recover()
    for name in ("worker-0", "worker-1", "ps-0"):
        made.do("join", node=name, incarnation="i", address="here")
    made.do("announce", dataset="training", size=10_000)
    yield made
    made._journal.close()


def lease(master: Master, worker: str, request_id: int = 1) -> None:
    assert master.do("lease", dataset="training", worker=worker, count=1, request_id=request_id)
    master.detector.lease_granted(worker, master.clock())


def test_failed_worker_that_does_not_exit_is_killed(master: Master, clock: Clock, stopped: list[str]) -> None:
    """Also before the first batch, and while others hang."""

    def check() -> None:
        asyncio.run(master.supervisor.check_nodes())

    lease(master, "worker-0")
    lease(master, "worker-1")
    master.do("fail", node="worker-0", kind="program", message="bad", traceback="", lease_id=1)
    check()
    clock.now += 29
    check()
    assert stopped == []
    clock.now += 2
    check()
    check()
    assert stopped == ["worker-0"]
    for _ in range(2):
        clock.now += 31
        check()
    assert stopped == ["worker-0", "worker-0"]
    status = {"name": "worker-0", "role": "worker", "phase": "failed", "reason": "stopped", "message": ""}
    master.do("observe", status={**status, "exit_code": None})
    assert [lease.worker for lease in master.state.ledger.held("training")] == ["worker-1"]
    for _ in range(2):
        clock.now += 31
        check()
    assert stopped == ["worker-0", "worker-0"]


def test_failed_worker_whose_end_is_known_is_left_alone(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    """What it is credited with takes a while where servers do not answer."""
    lease(master, "worker-0")
    master.do("fail", node="worker-0", kind="program", message="bad", traceback="", lease_id=1)
    master.detector.node_ended("worker-0")
    for _ in range(3):
        asyncio.run(master.supervisor.check_nodes())
        clock.now += 31
    assert stopped == []
