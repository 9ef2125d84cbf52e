"""Fewer parameter servers than have room for the rows that there are: the job stays as it is, and says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.scale_limits import CannotScale, scale
from elasticdl.master.servers.bucket_placement import fewest_servers
from elasticdl.master.servers.server_metrics import ServerFigures
from elasticdl.wire import ps_pb2

MEBI = 1 << 20


@pytest.mark.parametrize(
    ("rows", "copies", "replicas", "room", "fewest"),
    [
        (0, 2, 2, 100, 1),
        # One server keeps one copy.
        (200, 2, 2, 100, 1),
        (202, 2, 2, 100, 3),
        (400, 2, 2, 100, 4),
        (401, 2, 2, 100, 5),
        # From one server, of one copy, to two of two.
        (100, 1, 2, 100, 1),
        (300, 1, 1, 100, 3),
    ],
)
def test_how_many_it_takes(rows: int, copies: int, replicas: int, room: int, fewest: int) -> None:
    assert fewest_servers(rows, copies=copies, replicas=replicas, room=room) == fewest


class Played:
    """As much of a master as is asked."""

    def __init__(self, servers: int, limit: str, bytes_each: int) -> None:
        self.spec = JobSpec.build(
            model_zoo="zoo",
            model_def="m.m.custom_model",
            training_data="data",
            num_workers=2,
            num_ps=servers,
            **({"ps_resource_limit": limit} if limit else {}),
        )
        self.plan = SimpleNamespace(servers=True, replicas=2)
        self.state = SimpleNamespace(
            roster=SimpleNamespace(targets={"ps": servers, "worker": 2}, nodes={}), training_over=False
        )
        self.figures = ServerFigures()
        table = ps_pb2.TableFigures(table="t", rows=1, bytes=bytes_each)
        reply = ps_pb2.ServerStatusReply(figures=ps_pb2.Figures(seconds=1.0, tables=[table]))
        names = {number: f"ps-{number}" for number in range(servers)}
        self.figures.take(dict.fromkeys(names, reply), names)
        self.done: list[int] = []

    def do(self, command: str, **fields: Any) -> None:
        self.done.append(fields["target"])


def test_servers_that_are_needed_stay() -> None:
    # Each may have 96 MiB of rows, of its 128.
    master: Any = Played(4, "memory=128Mi", 80 * MEBI)
    with pytest.raises(
        CannotScale, match=r"do not fit on 3: .* 335,544,320 bytes on 4 .* It takes 4 or more"
    ):
        scale(master, {"ps": 3})
    assert master.done == []


def test_servers_that_are_not_needed_go() -> None:
    master: Any = Played(4, "memory=128Mi", 40 * MEBI)
    scale(master, {"ps": 2})
    assert master.done == [2]


def test_more_are_always_welcome() -> None:
    master: Any = Played(2, "memory=128Mi", 120 * MEBI)
    scale(master, {"ps": 3})
    assert master.done == [3]


def test_without_a_limit_nothing_is_known() -> None:
    master: Any = Played(2, "", 1 << 40)
    scale(master, {"ps": 1})
    assert master.done == [1]
