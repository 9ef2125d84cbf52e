"""A server process is as large after thousands of calls as after the first: pulls, pushes, copies, connections, moves.

Nothing is said about time. What a call may leave behind is a few bytes at most: allocators round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, first_map
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_channel
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub
from tests.ps.processes import Master

ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras")
TABLE = TableSpec(name="users", width=8)
IDS = np.arange(2000)
DENSE = {f"w{number}": np.zeros(500, np.float32) for number in range(4)}
# Of each: after a warm-up of the same, and less than a message would be.
PUSHES, COPIES, CONNECTIONS, MOVES = 250, 30, 30, 3
WARM_UP, ROUNDS = 2, 4
BYTES_A_CALL = 700


class Pair:
    """Two real servers, and the master that a test plays to them."""

    def __init__(self, folder: Path, token: str) -> None:
        self.token = token
        self.master = Master(token)
        (folder / "token").write_text(token)
        self.processes = []
        self.members = {}
        for number in range(2):
            environment = {
                **os.environ,
                "MASTER_ADDR": f"127.0.0.1:{self.master.port}",
                "ELASTICDL_TOKEN_FILE": str(folder / "token"),
                "ELASTICDL_NODE": f"ps-{number}",
                "WORKER_ID": str(number),
            }
            command = [sys.executable, "-m", "elasticdl.ps"]
            self.processes.append(
                subprocess.Popen(command, env=environment, stderr=(folder / f"{number}.log").open("wb"))
            )
            self.members[number] = self.master.joined.get(timeout=60)
        self.channels = [open_channel(member.address, token) for member in self.members.values()]
        self.stubs = [ParameterServerStub(channel) for channel in self.channels]  # type: ignore[no-untyped-call]
        self.map = first_map(2)
        self.use(self.map)

    def use(self, new: BucketMap) -> None:
        self.map = new
        self.master.want(
            generation=1,
            ps_map=new.to_wire(),
            ps_addresses=[member.address for member in self.members.values()],
            ps_incarnations=[member.incarnation for member in self.members.values()],
        )

    def change(self, done: Callable[[Any], set[int]], **changes: Any) -> None:
        """Another map, and waits until servers report so of every bucket."""
        self.use(replace(self.map, version=self.map.version + 1, **changes))
        reported: set[int] = set()
        pause = threading.Event()
        while len(reported) < BUCKETS:
            statuses = [stub.ServerStatus(ps_pb2.ServerStatusRequest()) for stub in self.stubs]
            current = [status for status in statuses if status.ps_map.version == self.map.version]
            reported = set().union(*(done(status) for status in current))
            pause.wait(0.01)

    def routes(self) -> Routes:
        return Routes(
            map=self.map,
            addresses={number: member.address for number, member in self.members.items()},
            incarnations={number: member.incarnation for number, member in self.members.items()},
        )

    def client(self, worker: str = "worker-0") -> ParameterClient:
        return ParameterClient(
            token=self.token, worker=worker, generation=1, routes=self.routes, patience_seconds=120
        )

    def resident(self) -> int:
        return sum(psutil.Process(process.pid).memory_info().rss for process in self.processes)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for channel in self.channels:
            channel.close()
        self.master.stop()


@pytest.fixture
def pair(tmp_path: Path, token: str) -> Iterator[Pair]:
    pair = Pair(tmp_path, token)
    yield pair
    pair.close()


def push(client: ParameterClient) -> None:
    ones = {name: np.ones(500, np.float32) for name in DENSE}
    rows = {"users": RowGradients(ids=IDS, values=np.ones((len(IDS), 8), np.float32))}
    client.push(ones, rows=rows, learning_rate=0.1)


def do_everything(pair: Pair, client: ParameterClient, number: int) -> int:
    """Returns how many calls that were."""
    for _ in range(PUSHES):
        client.pull()
        client.pull_rows({"users": IDS})
        push(client)
    for copy in range(COPIES):
        for stub in pair.stubs:
            request = ps_pb2.FreezeRequest(
                name=f"barrier-{number}-{copy}", generation=1, map_version=pair.map.version
            )
            stub.Freeze(request)
        push(client)
        client.pull(frozen=f"barrier-{number}-{copy}")
        for stub in pair.stubs:
            stub.Release(ps_pb2.ReleaseRequest(name=f"barrier-{number}-{copy}"))
    for _ in range(CONNECTIONS):
        another = pair.client("worker-1")
        another.pull()
        push(client)
        another.close()
    for _ in range(MOVES):
        move(pair)
        push(client)
    return 3 * PUSHES + 6 * COPIES + 2 * CONNECTIONS + 4 * MOVES


def move(pair: Pair) -> None:
    """Every bucket changes its server, and all copies are made again."""
    before = pair.map.primary
    other = tuple(1 - server for server in before)
    everything = range(BUCKETS)
    pair.change(
        lambda status: set(status.taken),
        primary=other,
        backup=before,
        handover=dict(zip(everything, before, strict=True)),
    )
    pair.use(replace(pair.map, version=pair.map.version + 1, backup=(NO_SERVER,) * BUCKETS, handover={}))
    pair.change(
        lambda status: {one.bucket for one in status.filled},
        migrating=dict(zip(everything, before, strict=True)),
    )
    pair.use(replace(pair.map, version=pair.map.version + 1, backup=before, migrating={}))


@pytest.mark.timeout(600)
def test_nothing_is_left_behind_by_a_call(pair: Pair) -> None:
    client = pair.client()
    client.initialize(DENSE, {}, ADAM, [TABLE])
    for number in range(WARM_UP):
        do_everything(pair, client, number)
    before = pair.resident()
    calls = sum(do_everything(pair, client, WARM_UP + number) for number in range(ROUNDS))
    grown = pair.resident() - before
    client.close()
    print(f"{calls:,} calls, {grown:,} bytes, {grown / calls:.0f} a call")
    assert grown < BYTES_A_CALL * calls, f"{grown:,} bytes more after {calls:,} calls"
