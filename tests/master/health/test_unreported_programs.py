"""A program that hangs before its first call is killed; one that waits for a shard gets its shards again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.master import Master
from elasticdl.master.programs.program_datasets import Announcement
from elasticdl.platforms.platform import NodePhase, Platform
from tests.master.fake_time import Clock


@pytest.fixture
def master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(
        job_name="unreported",
        job_command="true",
        num_workers=2,
        relaunch_on_worker_failure=1,
        start_timeout_seconds=100,
        stall_floor_seconds=10,
    )
    (tmp_path / "journal").mkdir()
    made = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}, clock=clock)
    made.recover()
    asyncio.run(made.reconcile())
    for name in ("worker-0", "worker-1"):
        status = {"name": name, "role": "worker", "phase": NodePhase.RUNNING.value, "reason": ""}
        made.do("observe", status={**status, "exit_code": None, "message": ""})
    yield made
    made._journal.close()
    made._events.close()


def announce(master: Master) -> None:
    said = Announcement(name="d", size=10, batch_size=2, epochs=1, minibatches_per_shard=1)
    master.do("data.open", announcement=asdict(said))


def check(master: Master) -> None:
    asyncio.run(master.supervisor.check_nodes())


def test_program_without_a_report_while_others_report_is_killed_and_has_failed(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    announce(master)
    master.detector.program_reported("worker-0", clock())
    clock.now += 99
    check(master)
    assert stopped == []
    clock.now += 2
    check(master)
    assert stopped == ["worker-1"]
    assert master.state.roster.nodes["worker-1"].failures == 1
    check(master)
    assert stopped == ["worker-1"]


def test_pending_program_is_not_killed(master: Master, clock: Clock, stopped: list[str]) -> None:
    master.state.roster.nodes["worker-1"].phase = NodePhase.PENDING
    announce(master)
    master.detector.program_reported("worker-0", clock())
    clock.now += 10_000
    check(master)
    assert stopped == []


def test_timeout_is_counted_from_the_first_report_of_any_program(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    clock.now += 150
    announce(master)
    master.detector.program_reported("worker-0", clock())
    clock.now += 99
    check(master)
    assert stopped == []
    clock.now += 2
    check(master)
    assert stopped == ["worker-1"]


def test_programs_without_announced_data_need_not_report(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    clock.now += 10_000
    check(master)
    assert stopped == []


def lease(master: Master, clock: Clock, worker: str) -> None:
    number = master.state.ledger.next_lease
    master.do("lease", dataset="d", worker=worker, count=1, request_id=number)
    master.detector.program_reported(worker, clock())
    master.detector.lease_granted(worker, clock())
    clock.now += 1
    master.detector.progress_reported(worker, clock(), batches=1)


@pytest.mark.parametrize(
    ("waits", "given_again"), [(lambda worker: worker == "worker-1", True), (lambda worker: False, False)]
)
def test_stalled_program_that_waits_for_a_shard_has_its_shards_requeued(
    master: Master, clock: Clock, stopped: list[str], waits: Callable[[str], bool], given_again: bool
) -> None:
    announce(master)
    for worker in ("worker-0", "worker-1"):
        lease(master, clock, worker)
    master.supervisor.waits_for_shard = waits
    clock.now += 31
    master.detector.progress_reported("worker-0", clock(), batch_seconds=1.0)
    check(master)
    assert (stopped == []) is given_again
    assert bool(master.state.ledger.held_by("worker-1")) is not given_again
    assert master.state.ledger.held_by("worker-0")


def test_restarted_stall_timers_spare_programs_that_wait_for_a_server(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    announce(master)
    lease(master, clock, "worker-0")
    master.detector.program_reported("worker-1", clock())
    clock.now += 29
    master.detector.restart_stall_timers()
    check(master)
    clock.now += 29
    check(master)
    assert stopped == []
