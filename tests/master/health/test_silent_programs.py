"""Programs that hang before their first call are ended; those that only wait for a shard get theirs again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.commands.programs import OpenDataset
from elasticdl.master.commands.shards import LeaseShards
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.master import Master
from elasticdl.platforms.platform import NodePhase, Platform
from tests.master.fake_time import Clock
from tests.master.node_statuses import node_status


@pytest.fixture
def master(tmp_path: Path, clock: Clock, nowhere: Platform) -> Iterator[Master]:
    spec = JobSpec.build(
        job_name="silent",
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
        made.do(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
    yield made
    made._journal.close()
    made._events.close()


def announce(master: Master) -> None:
    said = DatasetAnnouncement(name="d", size=10, batch_size=2, epochs=1, minibatches_per_shard=1)
    master.do(OpenDataset(announcement=said))


def look(master: Master, clock: Clock) -> None:
    asyncio.run(master.end_the_stuck(clock()))


def test_who_is_silent_while_others_are_not_is_ended_and_has_failed(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    announce(master)
    master.liveness.heard("worker-0")
    clock.now += 99
    look(master, clock)
    assert stopped == []
    clock.now += 2
    look(master, clock)
    assert stopped == ["worker-1"]
    assert master.state.roster.nodes["worker-1"].failures == 1
    look(master, clock)
    assert stopped == ["worker-1"]


def test_who_waits_for_room_on_a_cluster_is_not_silent(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    master.state.roster.nodes["worker-1"].phase = NodePhase.PENDING
    announce(master)
    master.liveness.heard("worker-0")
    clock.now += 10_000
    look(master, clock)
    assert stopped == []


def test_where_all_need_long_the_others_may_need_longer_than_the_first(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    clock.now += 150
    announce(master)
    master.liveness.heard("worker-0")
    clock.now += 99
    look(master, clock)
    assert stopped == []
    clock.now += 2
    look(master, clock)
    assert stopped == ["worker-1"]


def test_programs_without_data_of_ours_may_be_silent(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    clock.now += 10_000
    look(master, clock)
    assert stopped == []


def lease(master: Master, clock: Clock, worker: str) -> None:
    number = master.state.ledger.next_lease
    master.do(LeaseShards(dataset="d", worker=worker, count=1, request_id=number))
    master.liveness.heard(worker)
    master.liveness.leased(worker)
    clock.now += 1
    master.liveness.moved(worker, batches=1)


@pytest.mark.parametrize(
    ("waits", "given_again"), [(lambda worker: worker == "worker-1", True), (lambda worker: False, False)]
)
def test_who_waits_for_a_shard_does_not_work_on_one(
    master: Master, clock: Clock, stopped: list[str], waits: Callable[[str], bool], given_again: bool
) -> None:
    announce(master)
    for worker in ("worker-0", "worker-1"):
        lease(master, clock, worker)
    master.waits_for_shard = waits
    clock.now += 31
    master.liveness.moved("worker-0", batch_seconds=1.0)
    look(master, clock)
    assert (stopped == []) is given_again
    assert bool(master.state.ledger.held_by("worker-1")) is not given_again
    assert master.state.ledger.held_by("worker-0")


def test_who_waits_for_a_lost_parameter_server_is_excused(
    master: Master, clock: Clock, stopped: list[str]
) -> None:
    announce(master)
    lease(master, clock, "worker-0")
    master.liveness.heard("worker-1")
    clock.now += 29
    master.liveness.excuse()
    look(master, clock)
    clock.now += 29
    look(master, clock)
    assert stopped == []
