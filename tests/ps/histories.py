"""For tests: a history of pushes and acknowledgements, with servers that are lost, added and removed at random and a
network that delays everything, and what must hold of it.

The stores are real, all between them is simulated, and every run is settled by its seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import elasticdl
from elasticdl.ps import messages
from elasticdl.ps.bodies import Mask, pack, unpack
from elasticdl.ps.buckets import BUCKETS, NOBODY, BucketMap, dense_buckets, first_map
from elasticdl.ps.calls import share_of
from elasticdl.ps.cohorts import LastPush
from elasticdl.ps.custom import to_config
from elasticdl.ps.failures import NotHere, NotReady
from elasticdl.ps.holdings import Initial
from elasticdl.ps.initializers import Initializer
from elasticdl.ps.messages import read_push, rows_parts
from elasticdl.ps.moves import plan_moves, promote
from elasticdl.ps.replication import Outbox, Routes
from elasticdl.ps.store import Pushing, ServerSettings, Store
from elasticdl.ps.table import TableSpec, buckets_of, convert
from elasticdl.wire import ps_pb2

# One update adds one to every number: what is there tells how many there were.
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.0})


class OwnSGD(elasticdl.Optimizer):
    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        return value - learning_rate * gradient


OWN_SGD = to_config(OwnSGD())
TABLE = TableSpec(name="t", width=2, initializer=Initializer(kind="zeros"))
IDS = np.arange(60)
ID_BUCKETS = buckets_of(IDS, BUCKETS)
DENSE = {f"d{number}": np.zeros(3, np.float32) for number in range(5)}
DENSE_BUCKETS = {"trainable": dense_buckets(dict.fromkeys(DENSE, 12)), "state": {}}
ALL = np.ones(BUCKETS, np.bool_)
NOTHING = LastPush()


@dataclass(eq=False)
class Server:
    number: int
    incarnation: str
    store: Store
    # Cut off from the master, which has given it up; it does not know.
    cut_off: bool = False
    seen: int = 0
    # By outbox: how far it has been sent; acknowledgements on their way back.
    sent: dict[int, tuple[Outbox, int]] = field(default_factory=dict)
    acks: list[tuple[Outbox, int]] = field(default_factory=list)


@dataclass(eq=False)
class Worker:
    name: str
    routes: Routes
    batches: int
    sequence: int = 0
    left: Mask | None = None
    asked: list[tuple[Server, Mask, Pushing]] = field(default_factory=list)
    acknowledged: int = 0
    # Every so many of its batches have gradients that are not finite; 0: none.
    bad_every: int = 0
    # Of the table, what its batches have, the first one first; beyond them, all ids.
    touched: list[Mask] = field(default_factory=list)

    def is_bad(self, sequence: int) -> bool:
        return bool(self.bad_every) and sequence % self.bad_every == 0

    def good(self, batches: int) -> int:
        return sum(not self.is_bad(sequence) for sequence in range(1, batches + 1))

    def ids(self, sequence: int) -> Mask:
        """Those that a batch has."""
        return self.touched[sequence - 1] if sequence <= len(self.touched) else np.ones(len(IDS), np.bool_)

    def sightings(self, batches: int) -> NDArray[np.float64]:
        """How often each id was in one of the first batches."""
        good = [self.ids(number) for number in range(1, batches + 1) if not self.is_bad(number)]
        return np.sum(good, axis=0, dtype=np.float64) if good else np.zeros(len(IDS))


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        count = self.chance.randint(2, 4)
        self.generation_lost = False
        self.map = first_map(count)
        self.incarnations: dict[int, str] = {}
        self.living: dict[int, Server] = {}
        # Given up, and still running.
        self.zombies: list[Server] = []
        self.wanted = set(range(count))
        self.made = 0
        self.settling = False
        # How soon a worker hears of a new map.
        self.freshness = self.chance.choice([0.3, 0.02])
        # Synchronous training now and then: so many pushes are added up before their mean is applied. A power of two:
        # then nothing is rounded.
        self.waits = self.chance.choice([1, 1, 4])
        self.transfer = self.chance.choice(["float32", "float16", "bfloat16"])
        self.server_settings = ServerSettings(
            grads_to_wait=self.waits,
            sync_version_tolerance=1_000_000,
            max_bad_gradients=1_000_000,
        )
        self.optimizer = self.chance.choice([SGD, SGD, SGD, OWN_SGD])
        for number in range(count):
            self.start(number)
        routes = self.routes()
        for server in self.living.values():
            server.store.see(routes)
            server.store.open()
            initial = Initial(
                trainable=DENSE,
                state={},
                optimizer=self.optimizer,
                tables=[TABLE],
                array_buckets=DENSE_BUCKETS["trainable"],
            )
            # As if told by the primaries; how that goes is tested elsewhere.
            server.store._holdings.initialize(server.store._roles.complete, initial)
        self.workers = [self.employ(n, routes) for n in range(self.chance.randint(1, 3))]

    def employ(self, number: int, routes: Routes) -> Worker:
        batches = self.chance.randint(5, 25)
        draw = np.random.default_rng(self.chance.getrandbits(32))
        return Worker(
            name=f"worker-{number}",
            routes=routes,
            batches=batches,
            bad_every=self.chance.choice([0, 3]),
            # Batches without the table, with few ids, with many, with all.
            touched=[draw.random(len(IDS)) < draw.choice([0.0, 0.05, 0.5, 1.0]) for _ in range(batches)],
        )

    # -- the master ------------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        self.made += 1
        incarnation = f"incarnation-{self.made}"
        store = Store(self.server_settings, number=number, incarnation=incarnation)
        store.close(1)
        self.incarnations[number] = incarnation
        self.living[number] = Server(number, incarnation, store)

    def routes(self) -> Routes:
        return Routes(map=self.map, addresses={}, incarnations=dict(self.incarnations))

    def publish(self, new: BucketMap) -> None:
        assert new.version >= self.map.version
        self.map = new

    def lose(self) -> None:
        """The master gives up a server: it has died, or cannot be reached by the master any more."""
        used = [server for server in self.living.values() if server.number in self.map.servers]
        if not used:
            return
        server = self.chance.choice(used)
        new = promote(self.map, {server.number})
        if new is None:
            # Nothing to be shown here: a new generation would begin.
            return
        del self.living[server.number]
        del self.incarnations[server.number]
        if self.chance.random() < 0.4:
            server.cut_off = True
            self.zombies.append(server)
        self.publish(new)

    def come_back(self) -> None:
        for number in sorted(self.wanted - set(self.living)):
            self.start(number)
            self.living[number].store.see(self.routes())
            self.living[number].store.open()
            self.living[number].seen = self.map.version

    def scale(self) -> None:
        number = self.chance.randint(0, 5)
        if number in self.wanted and len(self.wanted) > 2:
            self.wanted.discard(number)
        else:
            self.wanted.add(number)

    def plan(self) -> None:
        filled, taken = {}, []
        for server in self.living.values():
            status = server.store.status()
            if status.map is None or status.map.version != self.map.version:
                # What it says by an older map may have been undone since.
                continue
            for bucket, peer, incarnation in status.filled:
                if self.incarnations.get(peer) == incarnation and self.map.primary[bucket] == server.number:
                    filled[bucket] = peer
            taken += [bucket for bucket in status.taken if self.map.primary[bucket] == server.number]
        staying = self.wanted & set(self.living)
        if staying:
            self.publish(plan_moves(self.map, staying, filled=filled, taken=taken, at_once=64))
        for number in list(self.living):
            if number not in self.wanted and number not in self.map.servers:
                del self.living[number]
                del self.incarnations[number]

    # -- servers ---------------------------------------------------------------------------------------------

    def tell_server(self) -> None:
        server = self.chance.choice(list(self.living.values()))
        server.store.see(self.routes())
        server.seen = self.map.version

    def running(self) -> list[Server]:
        return [*self.living.values(), *self.zombies]

    def find(self, number: int, incarnation: str) -> Server | None:
        for server in self.running():
            if (server.number, server.incarnation) == (number, incarnation):
                return server
        return None

    def deliver(self, server: Server) -> bool:
        """An entry from a server to each of the others, or to some."""
        moved = False
        for outbox in server.store.correspondents(list(server.store._peers.outboxes.values()), seconds=0):
            if not self.settling and self.chance.random() < 0.4:
                # Connections are not equally fast.
                continue
            known, position = server.sent.get(outbox.peer, (outbox, 0))
            if known is not outbox:
                position = 0
            peer = self.find(outbox.peer, outbox.incarnation)
            if peer is None:
                continue
            if self.chance.random() < 0.05:
                # The connection breaks; all that is not known to have arrived is sent again.
                position = peer.store.received(server.number, server.incarnation, 1)
            told = server.store.next_told(outbox, position, seconds=0)
            if told is None:
                server.sent[outbox.peer] = (outbox, position)
                continue
            entry = ps_pb2.Entry.FromString(told[1])
            body = memoryview(b"".join(told[2]))
            try:
                peer.store.receive(
                    server.number,
                    server.incarnation,
                    1,
                    entry,
                    unpack(entry.buckets),
                    messages.carrying_out(entry, body),
                )
            except (NotHere, NotReady):
                continue
            moved = True
            server.sent[outbox.peer] = (outbox, entry.position)
            server.acks.append((outbox, entry.position))
        return moved

    def acknowledge(self, server: Server) -> bool:
        if not server.acks:
            return False
        outbox, position = server.acks.pop(0)
        server.store.acknowledge(outbox, position)
        return True

    # -- workers ---------------------------------------------------------------------------------------------

    def work(self, worker: Worker) -> bool:
        """Asks a server, or hears an answer, or is told the newest map."""
        if worker.left is None:
            if worker.sequence == worker.batches:
                return False
            worker.sequence += 1
            worker.left = ALL.copy()
        still = []
        for server, mask, pushing in worker.asked:
            if server not in self.running() or self.chance.random() < (0 if self.settling else 0.02):
                # It is gone, or the answer is lost: it will be asked again.
                continue
            if server.store.poll(pushing.waiting):
                moved = pushing.answer().moved
                worker.left &= ~mask if moved is None else (~mask | moved)
            else:
                still.append((server, mask, pushing))
        worker.asked = still
        if not worker.left.any():
            worker.left = None
            worker.acknowledged = worker.sequence
            return True
        if self.chance.random() < self.freshness or self.settling:
            worker.routes = self.routes()
        owners = np.array(worker.routes.map.primary)
        busy = np.zeros(BUCKETS, np.bool_)
        for _, mask, _ in worker.asked:
            busy |= mask
        free = worker.left & ~busy
        if not free.any():
            return False
        number = self.chance.choice(np.unique(owners[free]).tolist())
        # Somebody whose map is old may well reach one that was given up.
        found = [server for server in self.running() if server.number == number]
        if not found:
            return False
        server = self.chance.choice(found)
        mask = free & (owners == number)
        request, body = self.push_of(worker, mask)
        try:
            pushing = server.store.begin_push(read_push(request, body), message=request, body=(body,))
        except NotReady:
            return False
        worker.asked.append((server, mask, pushing))
        return True

    def push_of(self, worker: Worker, mask: Mask) -> tuple[ps_pb2.PushRequest, memoryview]:
        if worker.is_bad(worker.sequence):
            return ps_pb2.PushRequest(
                worker=worker.name,
                sequence=worker.sequence,
                learning_rate=1.0,
                generation=1,
                buckets=pack(mask),
                not_finite="t",
            ), memoryview(b"")
        minus = {name: -np.ones(3, np.float32) for name in DENSE}
        heads, parts = share_of({"trainable": minus, "state": {}}, DENSE_BUCKETS, mask)
        request = ps_pb2.PushRequest(
            worker=worker.name,
            sequence=worker.sequence,
            learning_rate=1.0,
            generation=1,
            buckets=pack(mask),
            arrays=heads,
        )
        touched = worker.ids(worker.sequence)
        if touched.any():
            ids = IDS[touched & mask[ID_BUCKETS]]
            gradients = convert(-np.ones((len(ids), 2), np.float32), self.transfer)
            request.rows.append(ps_pb2.RowsHead(table="t", ids=len(ids), dtype=self.transfer, width=2))
            parts = [*parts, *rows_parts([ids]), *rows_parts([gradients])]
        return request, memoryview(b"".join(parts))

    # -- what must hold --------------------------------------------------------------------------------------

    def check_nothing_lost(self) -> None:
        """Whatever happens next, what was acknowledged is there."""
        least = sum(worker.good(worker.acknowledged) for worker in self.workers) // self.waits
        for number, server in self.living.items():
            store = server.store
            with store._lock:
                serving = store._roles.serving & (np.array(self.map.primary) == number)
                for name, value in store._holdings.values(serving)[0].items():
                    assert (value >= least).all(), (name, value, least)
                if serving.any():
                    mine = serving[ID_BUCKETS]
                    rows = self.sums(store, serving)
                    acknowledged = sum(worker.sightings(worker.acknowledged) for worker in self.workers)[mine]
                    assert (rows >= acknowledged[:, None]).all(), (IDS[mine], rows, acknowledged)

    def sums(self, store: Store, mask: Mask) -> NDArray[np.float64]:
        """Of each id in some buckets, what all pushes have added up to: those that were applied, those that wait."""
        tables = store._holdings.tables
        mine = mask[ID_BUCKETS]
        rows = np.empty((int(mine.sum()), TABLE.width), np.float32)
        tables.gather_into(TABLE.name, IDS[mine], rows)
        waiting = np.zeros((len(IDS), TABLE.width))
        arrays = tables.waiting_groups(mask).get(f"waiting:{TABLE.name}", {})
        for key, ids in arrays.items():
            if key.endswith("/ids"):
                np.subtract.at(waiting, ids, arrays[key.replace("/ids", "/values")])
        return rows * np.float64(self.waits) + waiting[mine]

    def check_all(self) -> None:
        pushes = sum(worker.good(worker.batches) for worker in self.workers)
        refused = sum(worker.batches for worker in self.workers) - pushes
        total = float(pushes // self.waits)
        seen = np.zeros(BUCKETS, int)
        for number, server in self.living.items():
            primary = np.array(self.map.primary) == number
            backup = np.array(self.map.backup) == number
            seen += primary
            store = server.store
            with store._lock:
                assert (store._roles.serving == primary).all()
                trainable, _ = store._holdings.values(primary | backup)
            for name, value in trainable.items():
                np.testing.assert_array_equal(value, np.full(3, total), err_msg=f"{name} on {number}")
            if (primary | backup).any():
                rows = self.sums(store, primary | backup)
                wanted = sum(worker.sightings(worker.batches) for worker in self.workers)
                wanted = np.repeat(wanted[(primary | backup)[ID_BUCKETS], None], TABLE.width, axis=1)
                np.testing.assert_array_equal(rows, wanted)
            for cohort in store._holdings.cohorts.select(primary | backup):
                assert cohort.waiting == pushes % self.waits
                assert cohort.refused == refused
                for worker in self.workers:
                    assert cohort.last.get(worker.name, NOTHING).sequence == worker.batches
        assert (seen == 1).all()

    # -- time ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        chance = self.chance.random()
        if chance < 0.45:
            self.work(self.chance.choice(self.workers))
        elif chance < 0.65:
            self.deliver(self.chance.choice(self.running()))
        elif chance < 0.8:
            self.acknowledge(self.chance.choice(self.running()))
        elif chance < 0.9:
            self.tell_server()
        elif chance < 0.96:
            self.plan()
        elif chance < 0.975:
            self.come_back()
        elif chance < 0.985:
            self.scale()
        else:
            self.lose()
            self.check_nothing_lost()

    def settle(self) -> None:
        """No more events: all that is under way comes to its end."""
        self.settling = True
        self.zombies.clear()
        self.come_back()
        for _ in range(400):
            before = self.map.version
            self.plan()
            moved = self.map.version != before
            for server in list(self.living.values()):
                server.store.see(self.routes())
            for server in list(self.living.values()):
                # What is acknowledged makes room for more.
                while self.deliver(server) or self.acknowledge(server):
                    moved = True
            for worker in self.workers:
                moved = self.work(worker) or moved
            if not moved and all(worker.acknowledged == worker.batches for worker in self.workers):
                return
        raise AssertionError("it never comes to rest")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.settle()
        self.check_all()
        assert NOBODY not in self.map.backup or len(self.wanted) < 2
