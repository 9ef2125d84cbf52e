"""A parameter server that hangs runs as far as the platform knows: one that does not answer for long is ended, and the
workers that wait for it are not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards
from elasticdl.master.master import Master
from tests.master.fake_time import Clock


@pytest.fixture
def stopped(nowhere: Any) -> list[str]:
    """The nodes that were stopped, without grace."""
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
            job_name="silent",
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
        one.liveness.moved("worker-0", batch_seconds=0.1)
        return one

    yield master
    for one in made:
        one._journal.close()


def ask(master: Master, clock: Clock, seconds: float, **answered: bool) -> None:
    """Every five seconds, for so long."""
    for _ in range(round(seconds / 5)):
        clock.now += 5
        asyncio.run(master.note_answers({name.replace("_", "-"): heard for name, heard in answered.items()}))


def test_one_of_two(start: Callable[..., Master], clock: Clock, stopped: list[str]) -> None:
    master = start(2)
    ask(master, clock, 300, ps_0=True, ps_1=True)
    ask(master, clock, 30, ps_0=True, ps_1=False)
    assert stopped == []
    ask(master, clock, 5, ps_0=True, ps_1=False)
    assert stopped == ["ps-1"]
    # Until the platform has noticed.
    ask(master, clock, 30, ps_0=True, ps_1=False)
    assert stopped == ["ps-1"]


def test_workers_are_not_blamed(start: Callable[..., Master], clock: Clock, stopped: list[str]) -> None:
    master = start(1)
    for _ in range(20):
        ask(master, clock, 5, ps_0=False)
        assert master.liveness.stalled(clock()) == []
    ask(master, clock, 5, ps_0=True)
    assert master.liveness.stalled(clock()) == []
    clock.now += 61
    assert master.liveness.stalled(clock()) == ["worker-0"]


def test_one_answer_is_enough(start: Callable[..., Master], clock: Clock, stopped: list[str]) -> None:
    master = start(2)
    for _ in range(10):
        ask(master, clock, 30, ps_0=True, ps_1=False)
        ask(master, clock, 5, ps_0=True, ps_1=True)
    assert stopped == []


def test_a_master_that_stood_still_asks_again(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2)
    ask(master, clock, 5, ps_0=True, ps_1=True)
    clock.now += 3600
    ask(master, clock, 5, ps_0=True, ps_1=False)
    assert stopped == []


@pytest.mark.parametrize(
    ("servers", "flags"), [(1, {}), (2, {"ps_replicas": 1})], ids=["the only one", "one copy of everything"]
)
def test_one_that_nobody_can_replace_is_waited_for_longer(
    start: Callable[..., Master], clock: Clock, stopped: list[str], servers: int, flags: dict[str, Any]
) -> None:
    master = start(servers, **flags)
    others = {f"ps_{number}": True for number in range(1, servers)}
    ask(master, clock, 120, ps_0=False, **others)
    assert stopped == []
    ask(master, clock, 5, ps_0=False, **others)
    assert stopped == ["ps-0"]


def test_all_of_them(start: Callable[..., Master], clock: Clock, stopped: list[str]) -> None:
    """It may be the way to them that is cut."""
    master = start(2)
    ask(master, clock, 120, ps_0=False, ps_1=False)
    assert stopped == []
    ask(master, clock, 5, ps_0=False, ps_1=False)
    assert stopped == ["ps-0", "ps-1"]


def test_where_nobody_is_ended_for_standing_still(
    start: Callable[..., Master], clock: Clock, stopped: list[str]
) -> None:
    master = start(2, stall_factor=0)
    ask(master, clock, 3600, ps_0=True, ps_1=False)
    assert stopped == []
