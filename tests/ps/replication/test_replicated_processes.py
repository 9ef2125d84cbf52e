"""Real parameter servers that are killed, added and removed while workers push: the history of pushes and
acknowledgements and what is on the servers in the end agree.

The master is played by the test, with the decisions of the real one (`moves.py`). More runs:

    python tests/ps/replication/test_replicated_processes.py FIRST COUNT
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import NO_SERVER, BucketMap, first_map
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.placement_planner import plan_moves, promote
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import master_pb2, ps_pb2
from elasticdl.wire.channel import add_port, new_server, open_channel
from elasticdl.wire.master_pb2_grpc import MasterServicer, add_MasterServicer_to_server
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub

TOKEN = "a token for tests"
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
TABLE = TableSpec(name="t", width=3, initializer=Initializer(kind="zeros"))
# So many that gradients lie in memory which all processes see (`wire/shared_bodies.py`).
IDS = np.arange(20_000)
DENSE = {f"d{number}": np.zeros(50, np.float32) for number in range(6)}


PROGRAM = ("-m", "elasticdl.ps")
# With a backup that skips every third push that it receives.
FAULTY = """
import runpy
from itertools import count
from elasticdl.ps.storage.bucket_store import BucketStore

replay, calls = BucketStore.replay, count(1)
BucketStore.replay = lambda *arguments: next(calls) % 3 and replay(*arguments)
runpy.run_module("elasticdl.ps", run_name="__main__", alter_sys=True)
"""


class Master(MasterServicer):
    """Publishes maps, polls servers, answers losses; starts and kills the processes."""

    def __init__(self, folder: Path, servers: int, program: Sequence[str]) -> None:
        self.folder = folder
        self.program = program
        spec = JobSpec.build(
            model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_workers=2, num_ps=servers
        )
        self.job_spec = to_yaml(spec)
        (folder / "token").write_text(TOKEN)
        self.changed = threading.Condition()
        self.map: BucketMap | None = None
        self.wanted = set(range(servers))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        # By number: of those that have joined and have not been given up.
        self.members: dict[int, tuple[str, str]] = {}
        self.channels: dict[str, grpc.Channel] = {}
        self.over = False
        self.failure: BaseException | None = None
        self.server = new_server(TOKEN, threads=32)
        add_MasterServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.port = add_port(self.server, "127.0.0.1:0")
        self.server.start()
        for number in self.wanted:
            self.start(number)
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.members) == servers, 120)
            self.map = first_map(servers)
            self.changed.notify_all()
        self.thread = threading.Thread(target=self.lead, daemon=True)
        self.thread.start()

    def start(self, number: int) -> None:
        environment = {
            **os.environ,
            "MASTER_ADDR": f"127.0.0.1:{self.port}",
            "ELASTICDL_TOKEN_FILE": str(self.folder / "token"),
            "ELASTICDL_NODE": f"ps-{number}",
            "WORKER_ID": str(number),
        }
        self.processes[number] = subprocess.Popen([sys.executable, *self.program], env=environment)

    def Join(self, request: master_pb2.JoinRequest, context: Any) -> master_pb2.JoinReply:
        with self.changed:
            self.members[int(request.node.rpartition("-")[2])] = (request.address, request.incarnation)
            self.changed.notify_all()
        return master_pb2.JoinReply(job_spec=self.job_spec)

    def Watch(self, request: master_pb2.WatchRequest, context: Any) -> Iterator[master_pb2.Directive]:
        sent = None
        while True:
            with self.changed:
                while not self.over and (self.map is None or self.state() == sent):
                    self.changed.wait()
                if self.over:
                    yield master_pb2.Directive(finished=True)
                    return
                sent = self.state()
                directive = self.directive()
            yield directive

    def state(self) -> tuple[Any, ...]:
        return (self.map, tuple(sorted(self.members.items())))

    def directive(self) -> master_pb2.Directive:
        assert self.map is not None
        last = max(self.members, default=-1) + 1
        absent = ("", "")
        return master_pb2.Directive(
            generation=1,
            ps_map=self.map.to_wire(),
            ps_addresses=[self.members.get(number, absent)[0] for number in range(last)],
            ps_incarnations=[self.members.get(number, absent)[1] for number in range(last)],
        )

    def routes(self) -> Routes:
        with self.changed:
            assert self.map is not None
            return Routes(
                map=self.map,
                addresses={number: address for number, (address, _) in self.members.items()},
                incarnations={number: incarnation for number, (_, incarnation) in self.members.items()},
            )

    # -- what it decides -------------------------------------------------------------------------------------

    def lead(self) -> None:
        try:
            while not self.over:
                self.look()
        except BaseException as error:
            self.failure = error
            raise

    def look(self) -> None:
        for number, process in list(self.processes.items()):
            if process.poll() is not None:
                self.lose(number)
        for number in self.wanted - set(self.processes):
            self.start(number)
        reports = self.ask()
        with self.changed:
            assert self.map is not None
            filled, taken = {}, []
            for number, status in reports.items():
                if status.ps_map.version != self.map.version:
                    # What it says by an older map may have been undone since.
                    continue
                for report in status.filled:
                    member = self.members.get(report.server)
                    if (
                        member
                        and member[1] == report.incarnation
                        and self.map.primary[report.bucket] == number
                    ):
                        filled[report.bucket] = report.server
                taken += [bucket for bucket in status.taken if self.map.primary[bucket] == number]
            staying = self.wanted & set(self.members)
            if staying:
                self.map = plan_moves(self.map, staying, filled=filled, taken=taken, at_once=40)
            for number in set(self.processes) - self.wanted - self.map.servers:
                self.members.pop(number, None)
                self.processes.pop(number).kill()
            self.changed.notify_all()
            self.changed.wait(0.05)

    def lose(self, number: int) -> None:
        self.processes.pop(number).wait()
        with self.changed:
            if self.members.pop(number, None) is not None:
                assert self.map is not None
                promoted = promote(self.map, {number})
                assert promoted is not None, "all copies of a bucket were killed"
                self.map = promoted
                self.changed.notify_all()

    def ask(self) -> dict[int, ps_pb2.ServerStatusReply]:
        replies = {}
        for number, (address, _) in list(self.members.items()):
            if address not in self.channels:
                self.channels[address] = open_channel(address, TOKEN)
            try:
                stub: Any = ParameterServerStub(self.channels[address])  # type: ignore[no-untyped-call]
                replies[number] = stub.ServerStatus(ps_pb2.ServerStatusRequest(), timeout=30)
            except grpc.RpcError:
                # Just killed, or just started.
                continue
        return replies

    def settled(self) -> bool:
        assert self.map is not None
        return (
            self.map.servers == self.wanted
            and not self.map.migrating
            and not self.map.handover
            and NO_SERVER not in self.map.backup
        )

    def wait_until_settled(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.failure is not None or self.settled(), 200)
        assert self.failure is None

    def kill_one_amid_moves(self, chance: random.Random) -> None:
        """As soon as something moves, if there are two copies of everything then."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.failure is not None or self.is_moving(), 200)
            assert self.map is not None
            there = {
                number: process
                for number, process in self.processes.items()
                if number in self.members and process.poll() is None
            }
            if NO_SERVER not in self.map.backup and self.map.servers <= there.keys():
                there[chance.choice(sorted(there))].kill()

    def is_moving(self) -> bool:
        assert self.map is not None
        return bool(self.map.migrating or self.map.handover) or self.settled()

    def close(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()
        self.thread.join()
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.server.stop(None).wait()
        for channel in self.channels.values():
            channel.close()


class Worker:
    """Pushes another number with each batch, and writes down what was acknowledged."""

    def __init__(self, name: str, master: Master, stop: threading.Event) -> None:
        self.acknowledged = 0
        self.total = 0
        self.failure: BaseException | None = None
        self._stop = stop
        self._client = ParameterClient(
            token=TOKEN, worker=name, generation=1, routes=master.routes, patience_seconds=200
        )
        self._client.initialize(DENSE, {}, SGD, [TABLE])
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        minus = {name: np.empty(50, np.float32) for name in DENSE}
        rows = {"t": RowGradients(ids=IDS, values=np.empty((len(IDS), 3), np.float32))}
        try:
            while not self._stop.is_set():
                # In memory that is written to as soon as a push is acknowledged.
                number = 1 + self.acknowledged % 7
                for array in (*minus.values(), rows["t"].values):
                    array[:] = -number
                self._client.push(minus, rows=rows, learning_rate=1.0)
                self.acknowledged += 1
                self.total += number
        except BaseException as error:
            self.failure = error
            raise

    def close(self) -> None:
        self._thread.join()
        self._client.close()


def push_on(workers: list[Worker], count: int, check: Callable[[], None]) -> None:
    """Until each worker has had so many more batches acknowledged."""
    goals = [worker.acknowledged + count for worker in workers]
    tick = threading.Event()
    while any(worker.acknowledged < goal for worker, goal in zip(workers, goals, strict=True)):
        for worker in workers:
            assert worker.failure is None
        check()
        tick.wait(0.02)


KINDS = ("kill", "add", "remove", "add and kill", "remove and kill")
FIRST = ("kill", "add and kill", "kill", "remove and kill")


def run(folder: Path, seed: int, events: int, program: Sequence[str] = PROGRAM) -> None:
    chance = random.Random(seed)
    master = Master(folder, 2, program)
    stop = threading.Event()
    workers = [Worker(f"worker-{number}", master, stop) for number in range(2)]

    def check() -> None:
        assert master.failure is None

    try:
        # Losses first of all, then whatever comes.
        for number in range(events):
            push_on(workers, 3, check)
            kind = FIRST[number] if number < len(FIRST) else chance.choice(KINDS)
            if kind == "kill":
                # Only one copy of anything at a time: with both, a job goes back to its checkpoint.
                master.wait_until_settled()
                push_on(workers, 2, check)
                master.processes[chance.choice(sorted(master.wanted))].kill()
            elif kind.startswith("add") and len(master.wanted) < 4:
                master.wanted.add(min(set(range(8)) - master.wanted))
            elif kind.startswith("remove") and len(master.wanted) > 2:
                master.wanted.discard(chance.choice(sorted(master.wanted)))
            if kind.endswith("and kill"):
                master.kill_one_amid_moves(chance)
        master.wait_until_settled()
        push_on(workers, 3, check)
        stop.set()
        for worker in workers:
            worker.close()
            assert worker.failure is None
        compare(master, sum(worker.total for worker in workers))
    finally:
        stop.set()
        master.close()


def compare(master: Master, total: int) -> None:
    reader = ParameterClient(
        token=TOKEN, worker="reader", generation=1, routes=master.routes, patience_seconds=60
    )
    reader.initialize(DENSE, {}, SGD, [TABLE])
    pulled = reader.pull()
    for name in DENSE:
        np.testing.assert_array_equal(pulled.trainable[name], np.full(50, total, np.float32), err_msg=name)
    rows = reader.pull_rows({"t": IDS})["t"]
    np.testing.assert_array_equal(rows, np.full((len(IDS), 3), total, np.float32))
    reader.close()


@pytest.mark.timeout(600)
def test_the_history_and_the_servers_agree(tmp_path: Path) -> None:
    run(tmp_path, seed=1, events=4)


@pytest.mark.timeout(600)
def test_where_everything_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in Credentials.make("mine").files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("ELASTICDL_CA_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("ELASTICDL_TLS_NAME", tls_name("mine"))
    monkeypatch.setenv("ELASTICDL_CERT_FILE", str(tmp_path / "tls.crt"))
    monkeypatch.setenv("ELASTICDL_KEY_FILE", str(tmp_path / "tls.key"))
    run(tmp_path, seed=2, events=2)


@pytest.mark.timeout(600)
def test_servers_with_a_fault_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        run(tmp_path, seed=1, events=1, program=("-c", FAULTY))


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as made:
            run(Path(made), seed=number, events=8)
        print("seed", number, flush=True)
