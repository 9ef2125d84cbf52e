"""A parameter server that does not answer probes is killed, and the workers that wait for it are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards
from elasticdl.master.health.decisions import FailureKind
from elasticdl.master.master import Master
from elasticdl.master.nodes.node_supervisor import job_view
from tests.master.fake_time import Clock


@pytest.fixture
def stopped(nowhere: Any) -> list[str]:
    """The nodes that were killed, without a grace period."""
    names: list[str] = []

    async def stop(name: str, *, grace_seconds: float) -> None:
        assert grace_seconds == 0
        names.append(name)

    nowhere.stop = stop
    return names


@pytest.fixture
def start(tmp_path: Path, clock: Clock, nowhere: Any, stopped: list[str]) -> Iterator[Callable[..., Master]]:
    made: list[Master] = []

    def master(servers: int, **flags: Any) -> Master:
        spec = JobSpec.build(
            job_name="unresponsive",
            model_zoo="zoo",
            model_def="a.b.c",
            training_data="data",
            num_workers=1,
            num_ps=servers,
            **{"stall_floor_seconds": 60, "stall_factor": 10, **flags},
        )
        (tmp_path / "journal").mkdir()
        one = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={}, clock=clock)
        made.append(one)
        one.recover()
        for name in ("worker-0", *(f"ps-{number}" for number in range(servers))):
            one.do(JoinNode(node=name, incarnation="i", address="here"))
        one.do(AnnounceDataset(dataset="training", size=10_000))
        assert one.do(LeaseShards(dataset="training", worker="worker-0", count=1, request_id=1))
        one.detector.progress_reported("worker-0", clock(), batch_seconds=0.1)
        return one

    yield master
    for one in made:
        one._journal.close()


def probe(master: Master, clock: Clock, seconds: float, **answered: bool) -> None:
    """Probes every five seconds, for so long."""
    for _ in range(round(seconds / 5)):
        clock.now += 5
        asyncio.run(
            master.supervisor.note_server_probe(
                {name.replace("_", "-"): heard for name, heard in answered.items()}
            )
        )


def stalled(master: Master, clock: Clock) -> list[str]:
    decisions = master.detector.check(job_view(master.state, lambda worker: False), clock())
    return [decision.node for decision in decisions if decision.kind is FailureKind.STALLED]


def test_server_that_does_not_answer_is_killed_after_half_the_stall_floor(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2)
    probe(master, clock, 300, ps_0=True, ps_1=True)
    probe(master, clock, 30, ps_0=True, ps_1=False)
    assert stopped == []
    probe(master, clock, 5, ps_0=True, ps_1=False)
    assert stopped == ["ps-1"]
    # Until the platform has noticed.
    probe(master, clock, 30, ps_0=True, ps_1=False)
    assert stopped == ["ps-1"]


def test_workers_that_wait_for_a_server_are_not_stalled(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(1)
    for _ in range(20):
        probe(master, clock, 5, ps_0=False)
        assert stalled(master, clock) == []
    probe(master, clock, 5, ps_0=True)
    assert stalled(master, clock) == []
    clock.now += 61
    assert stalled(master, clock) == ["worker-0"]


def test_one_answer_restarts_the_timer(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2)
    for _ in range(10):
        probe(master, clock, 30, ps_0=True, ps_1=False)
        probe(master, clock, 5, ps_0=True, ps_1=True)
    assert stopped == []


def test_suspended_master_probes_again_before_it_kills(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2)
    probe(master, clock, 5, ps_0=True, ps_1=True)
    clock.now += 3600
    probe(master, clock, 5, ps_0=True, ps_1=False)
    assert stopped == []


@pytest.mark.parametrize(
    ("servers", "flags"), [(1, {}), (2, {"ps_replicas": 1})], ids=["the only one", "one copy of everything"]
)
def test_irreplaceable_server_gets_four_times_as_long(
    start: Callable[..., Master], clock: Clock, stopped: list[str], servers: int, flags: dict[str, Any]
) -> None:
    master = start(servers, **flags)
    others = {f"ps_{number}": True for number in range(1, servers)}
    probe(master, clock, 120, ps_0=False, **others)
    assert stopped == []
    probe(master, clock, 5, ps_0=False, **others)
    assert stopped == ["ps-0"]


def test_all_servers_unresponsive_get_four_times_as_long(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    """The network may be down."""
    master = start(2)
    probe(master, clock, 120, ps_0=False, ps_1=False)
    assert stopped == []
    probe(master, clock, 5, ps_0=False, ps_1=False)
    assert stopped == ["ps-0", "ps-1"]


def test_zero_stall_factor_kills_no_server(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2, stall_factor=0)
    probe(master, clock, 3600, ps_0=True, ps_1=False)
    assert stopped == []
