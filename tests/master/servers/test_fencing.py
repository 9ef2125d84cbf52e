"""What a worker that has ended is credited with: its last batch that every bucket has had, also while buckets are
handed over, and where a server was lost with it.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elasticdl.master.commands.nodes import JoinNode, PartialPush, PushCredit
from elasticdl.master.health.timeouts import Timeouts
from elasticdl.master.servers.worker_fence import LastWord, WorkerFence, patience
from elasticdl.master.settings import JobSettings
from elasticdl.master.wakeup import Signal
from elasticdl.ps.client import coordinator
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.array_bodies import mask_of, pack
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.protocol.call_codec import read_push
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

TOKEN = "a token for tests"
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
FIRST = PushCredit(lease_id=7, position=10, batches=1)


# What the first server has the third one has too, but for one bucket; the same holds of the second.
PRIMARY = (0,) * 128 + (1,) * 128
BACKUP = (1,) + (2,) * 255


class Played:
    """A master with three servers behind real ports. What one hands over to another arrives when it may."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.state = job.state
        self.changed = Signal()
        self.now = 0.0
        self.stores: list[Store] = []
        self.servers: list[ParameterServer] = []
        job.start_nodes()
        self.may_arrive = threading.Event()
        for number in range(3):
            store = Store(ServerSettings(), number=number, incarnation=f"i-ps-{number}")
            self.hold_handovers(store)
            server = ParameterServer(token=TOKEN)
            server.serve(store)
            self.stores.append(store)
            self.servers.append(server)
            job.do(JoinNode(node=f"ps-{number}", incarnation=store.incarnation, address=server.address))
        self.use(primary=PRIMARY, backup=BACKUP)
        for store in self.stores:
            store.close(1)
            store.peers.update_routes(self.routes())
            store.open()
            everything = np.ones(BUCKETS, np.bool_)
            store.state.bucket_store.initialize(
                everything, InitialModel(trainable={}, state={}, optimizer=SGD)
            )

    def hold_handovers(self, store: Store) -> None:
        receive = store.peers.receive

        def held(sender: int, incarnation: str, generation: int, entry: ps_pb2.Entry, *more: Any) -> None:
            if entry.HasField("handover"):
                self.may_arrive.wait()
            receive(sender, incarnation, generation, entry, *more)

        store.peers.receive = held  # type: ignore[assignment, method-assign]

    def routes(self) -> Routes:
        placing = self.state.placing
        return Routes(map=placing.map, addresses=placing.addresses())

    def use(self, **changes: Any) -> None:
        made = replace(self.state.placing.map, version=self.state.placing.map.version + 1, **changes)
        # Not by a command: it would be evened out at once.
        self.state.placing._use(made)
        for store in self.stores:
            store.peers.update_routes(self.routes())

    def lose(self, *names: str) -> None:
        for name in names:
            self.job.end(name)
        if self.state.placing.map is not None:
            for store in self.stores:
                store.peers.update_routes(self.routes())

    def push(self, sequence: int, *, servers: Sequence[int] = (0, 1, 2)) -> None:
        """A batch of the worker, as far as servers take it."""
        request = ps_pb2.PushRequest(
            worker="worker-0",
            sequence=sequence,
            learning_rate=1.0,
            generation=1,
            lease_id=7,
            position=10 * sequence,
            batches=sequence,
        )
        for number in servers:
            store = self.stores[number]
            store.workers.push(read_push(request, memoryview(b"")), message=request)

    def last_word(self, after_a_round: Callable[[], None], *, rounds: int = 1) -> LastWord:
        """What the fence says, if something happens when it has been asked for once, or so many times."""

        class Watched(Coordinator):
            rounds = 0

            async def fence_all(self, *arguments: Any) -> ps_pb2.FenceReply:
                try:
                    return await super().fence_all(*arguments)
                finally:
                    self.rounds += 1
                    if self.rounds <= rounds:
                        after_a_round()

        async def ask() -> LastWord:
            watched = Watched(TOKEN)
            try:
                found = await WorkerFence(self, watched, lambda: self.now).last_word("worker-0")
            finally:
                await watched.close()
            return found

        return asyncio.run(ask())


@pytest.fixture
def master(toy_job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    # Whose backup is gone answers when the map says so, and here that comes after the answer was given up. Who is
    # late for other reasons is asked again.
    monkeypatch.setattr(coordinator, "_SECONDS", 1.0)
    plan = JobSettings(servers=3, replicas=2, workers=1, batch_size=5, shard_size=10)
    played = Played(toy_job(plan))
    yield played
    played.may_arrive.set()
    for server in played.servers:
        server.stop()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("handed", [range(1), range(BUCKETS)], ids=["one bucket", "all buckets"])
def test_buckets_that_are_being_handed_over_are_asked_for_again(master: Played, handed: range) -> None:
    master.push(1)
    before, backup = list(master.state.placing.map.primary), list(master.state.placing.map.backup)
    primary = list(before)
    for bucket in handed:
        primary[bucket], backup[bucket] = backup[bucket], primary[bucket]
    master.use(
        primary=tuple(primary), backup=tuple(backup), handover={bucket: before[bucket] for bucket in handed}
    )
    # The buckets under handover do not get this one, and the worker ends before it can repeat it.
    master.push(2)
    others = sorted(set(range(BUCKETS)) - set(handed))
    partial = PartialPush(lease_id=7, position=20, batches=2, buckets=pack(mask_of(others)).hex())
    assert master.last_word(master.may_arrive.set) == LastWord(
        credit=FIRST, partial=partial if others else None
    )


@pytest.mark.timeout(60)
def test_many_that_go_together_are_asked_about_once_each(master: Played) -> None:
    """Servers have fewer places for calls that wait for their backups than a machine has workers."""
    master.push(1)
    asked: list[str] = []

    class Counted(Coordinator):
        async def fence_all(self, addresses: Any, worker: str, generation: int) -> ps_pb2.FenceReply:
            asked.append(worker)
            return await super().fence_all(addresses, worker, generation)

    names = [f"worker-{number}" for number in range(50)]

    async def ask() -> list[LastWord]:
        counted = Counted(TOKEN)
        fencing = WorkerFence(master, counted, lambda: master.now)
        try:
            return await asyncio.gather(*(fencing.last_word(name) for name in names))
        finally:
            await counted.close()

    assert asyncio.run(ask()) == [LastWord(credit=FIRST)] + [LastWord()] * 49
    assert sorted(asked) == sorted(names)


@pytest.mark.timeout(60)
def test_a_server_that_was_lost_with_it(master: Played) -> None:
    master.push(1)
    master.servers[1].stop()
    assert master.last_word(lambda: master.lose("ps-1")) == LastWord(credit=FIRST)


@pytest.mark.timeout(60)
def test_first_push_that_reached_one_of_three_servers_is_partial(master: Played) -> None:
    master.push(1, servers=[1])
    theirs = [bucket for bucket in range(BUCKETS) if PRIMARY[bucket] == 1]
    assert master.last_word(lambda: None) == LastWord(
        partial=PartialPush(lease_id=7, position=10, batches=1, buckets=pack(mask_of(theirs)).hex())
    )


@pytest.mark.timeout(60)
def test_backup_knows_of_partial_push_after_loss_of_primary(master: Played) -> None:
    master.push(1)
    master.push(2, servers=[1])
    theirs = [bucket for bucket in range(BUCKETS) if PRIMARY[bucket] == 1]
    master.servers[1].stop()
    found = master.last_word(lambda: master.lose("ps-1"))
    assert found == LastWord(
        credit=FIRST,
        partial=PartialPush(lease_id=7, position=20, batches=2, buckets=pack(mask_of(theirs)).hex()),
    )


@pytest.mark.timeout(60)
def test_a_model_that_is_lost(master: Played) -> None:
    master.push(1)
    for server in master.servers:
        server.stop()
    assert master.last_word(lambda: master.lose("ps-0", "ps-1", "ps-2")) == LastWord()
    assert master.state.generation == 2


@pytest.mark.timeout(60)
def test_not_for_ever(master: Played, caplog: pytest.LogCaptureFixture) -> None:
    master.push(1)
    master.servers[1].stop()

    def wait() -> None:
        master.now += patience(master.state.plan)

    assert master.last_word(wait) == LastWord(in_doubt=True)
    assert "worker-0 could not be fenced at the parameter servers" in caplog.text


@pytest.mark.timeout(60)
def test_fencing_waits_for_unresponsive_server_until_it_is_lost(master: Played) -> None:
    """Workers cannot push to that one either: there is nothing to be gained by guessing what it has."""
    master.push(1)
    master.servers[1].stop()

    def wait() -> None:
        silent = Timeouts.of(master.state.plan).server_seconds(replaceable=False)
        if master.now < silent:
            master.now = silent
        else:
            master.lose("ps-1")

    assert master.last_word(wait, rounds=2) == LastWord(credit=FIRST)


def test_zero_stall_factor_waits_indefinitely() -> None:
    assert patience(JobSettings(servers=1, stall_factor=0)) == math.inf


@pytest.mark.timeout(60)
def test_one_that_has_pushed_nothing(master: Played) -> None:
    assert master.last_word(lambda: None) == LastWord()
