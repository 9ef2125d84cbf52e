"""For tests: a history of pushes and acknowledgements, with servers that are lost, added and removed at random, workers
that end, models that are lost and restored, and a network that delays everything; and what must hold of it.

In some of them it matters how old gradients are: either old ones are refused, and surviving workers finish all the
same, or they count less, and do so in all copies.

The stores are real, all between them is simulated, and every run is settled by its seed.
"""

from __future__ import annotations

import functools
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import elasticdl
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, file_name, write_manifest
from elasticdl.ps.client.calls import share_of
from elasticdl.ps.core.array_bodies import Mask, pack, unpack
from elasticdl.ps.core.bucket_versions import NOTHING_PULLED, UNKNOWN, Versions, to_wire, within, write_down
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, dense_buckets, first_map
from elasticdl.ps.core.server_errors import ServerFailure, WorkerFenced
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.table import TableSpec, buckets_of, convert
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.protocol.call_codec import read_initialize, read_push, rows_parts
from elasticdl.ps.protocol.results import PendingFence, PendingInitialize, PendingPush, PushResult
from elasticdl.ps.replication import peers
from elasticdl.ps.replication.placement_planner import plan_moves, promote
from elasticdl.ps.replication.replica_log import Outbox, Routes
from elasticdl.ps.server.generations import Generations
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.ps.storage.table_set import to_config as table_config
from elasticdl.ps.storage.update_history import LastPush
from elasticdl.wire import master_pb2, ps_pb2

# As many seeds as a test runs: each planted fault shows in one of them.
HISTORIES = 32
# One update adds one to every number: what is there tells how many there were.
SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.0})


class OwnSGD(elasticdl.Optimizer):
    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        return value - learning_rate * gradient


OWN_SGD = to_config(OwnSGD())
TABLE = TableSpec(name="t", width=2, initializer=Initializer(kind="zeros"))
ROW_BYTES = 16
# Some are in many buckets, others in few, which have several parts then.
_NUMBERS = np.arange(3000)
IDS = np.union1d(_NUMBERS[:40], _NUMBERS[buckets_of(_NUMBERS, BUCKETS) < 3])
ID_BUCKETS = buckets_of(IDS, BUCKETS)
DENSE = {f"d{number}": np.zeros(3, np.float32) for number in range(5)}
DENSE_BUCKETS = {"trainable": dense_buckets(dict.fromkeys(DENSE, 12)), "state": {}}
ALL = np.ones(BUCKETS, np.bool_)
NOTHING = LastPush()


# Goes when the process does.
_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def checkpoint() -> str:
    """Of the model before its first batch, for all histories of this process."""
    folder = Path(_FOLDER.name) / "version-0"
    folder.mkdir()
    store = Store(ServerSettings())
    store.close(1)
    store.open()
    store.workers.initialize(
        InitialModel(trainable=DENSE, state={}, optimizer=SGD, tables=[TABLE]), generation=1
    )
    store.master.freeze("barrier", generation=1)
    written = store.master.save("barrier", folder / file_name(0, 1))
    file = SavedFile(name=file_name(0, 1), bytes=written.bytes, crc32=written.crc32)
    write_manifest(folder, Manifest(step=0, files=(file,)), None)
    return str(folder)


@dataclass(eq=False)
class Server:
    number: int
    incarnation: str
    store: Store
    generations: Generations
    # Cut off from the master, which has given it up; it does not know.
    cut_off: bool = False
    # Directives of the master, in flight.
    directives: list[master_pb2.Directive] = field(default_factory=list)
    # By outbox: how far it has been sent; acknowledgements on their way back.
    sent: dict[int, tuple[Outbox, int]] = field(default_factory=dict)
    acks: list[tuple[Outbox, int]] = field(default_factory=list)


@dataclass(eq=False)
class Worker:
    name: str
    routes: Routes
    batches: int
    # It has given the servers its initial values, or heard that they have some.
    ready: bool = False
    sequence: int = 0
    left: Mask | None = None
    # What is left is to be pulled, and pushed only then.
    pulling: bool = False
    versions: Versions = field(default_factory=NOTHING_PULLED.copy)
    # Some of the batch was too old, and it comes again; so often so far.
    refused: bool = False
    tries: int = 0
    # It has pulled the newest version, and no push came since.
    alone: bool = False
    asked: list[tuple[Server, Mask, PendingInitialize | PendingPush]] = field(default_factory=list)
    acknowledged: int = 0
    # The master has given it up: it is dead, or does not know, and goes on until it is refused.
    ended: bool = False
    dead: bool = False
    # What it did, as the master counts it from then on.
    credited: int | None = None
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


@dataclass(eq=False)
class Fence:
    """The master's question to all servers, how far a worker has come."""

    worker: Worker
    asked: list[tuple[Server, PendingFence]] = field(default_factory=list)
    heard: Mask = field(default_factory=lambda: np.zeros(BUCKETS, np.bool_))
    # More than any worker has done.
    least: int = 1_000_000


class Copies:
    """Those of one bucket, compared."""

    def __init__(self) -> None:
        self._dense: dict[str, NDArray[np.float32]] = {}
        self._rows = np.full((len(IDS), TABLE.width), np.nan)

    def compare(self, store: Store, mask: Mask, rows: NDArray[np.float64]) -> None:
        """What a server has of some buckets, and of their ids."""
        for name, value in store.state.bucket_store.values(mask)[0].items():
            known = self._dense.setdefault(name, value.copy())
            np.testing.assert_array_equal(value, known, err_msg=f"{name} on {store.number}")
        mine = mask[ID_BUCKETS]
        before = self._rows[mine]
        np.testing.assert_array_equal(rows, np.where(np.isnan(before), rows, before))
        self._rows[mine] = rows


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        count = self.chance.randint(2, 4)
        self.generation = 1
        self.map = first_map(count)
        self.incarnations: dict[int, str] = {}
        self.living: dict[int, Server] = {}
        # Given up, and still running.
        self.zombies: list[Server] = []
        self.wanted = set(range(count))
        self.made = 0
        self.settling = False
        # How soon a worker receives a new map.
        self.freshness = self.chance.choice([0.3, 0.02])
        # Synchronous training now and then: so many pushes are added up before their mean is applied. A power of two:
        # then nothing is rounded.
        self.waits = self.chance.choice([1, 1, 4])
        # Old gradients are refused; or they count less.
        self.strict, self.modulated = seed // 2 % 4 == 2, seed // 2 % 4 == 3
        if self.modulated:
            self.waits = 1
        # Of what is copied to another server at once: a row, or whole buckets.
        self.part_bytes = ROW_BYTES if seed % 2 else 4 << 20
        self.transfer = self.chance.choice(["float32", "float16", "bfloat16"])
        self.server_settings = ServerSettings(
            asynchronous=not self.strict,
            grads_to_wait=self.waits,
            sync_version_tolerance=seed // 8 % 4 // 3 if self.strict else 1_000_000,
            lr_staleness_modulation=self.modulated,
            max_bad_gradients=1_000_000,
        )
        self.optimizer = self.chance.choice([SGD, SGD, SGD, OWN_SGD])
        # Workers draw other values than those of the checkpoint.
        self.restore_from = self.chance.choice(["", checkpoint()])
        self.drawn = {name: value + 1000 for name, value in DENSE.items()} if self.restore_from else DENSE
        for number in range(count):
            self.start(number)
        for server in self.living.values():
            self.tell(server)
        self.fences: list[Fence] = []
        self.employed = 0
        # So many times yet. A model that is lost takes all with it that might have shown by then: few are.
        self.models_to_lose = self.chance.choice([0, 0, 0, 1])
        self.workers_to_end = self.chance.choice([0, 1, 4])
        self.workers = [self.employ() for _ in range(self.chance.randint(1, 3))]
        ages = self.strict or self.modulated
        if self.chance.random() < 0.7 or ages:
            # There is more to be lost from the first.
            self.begin()
        if ages:
            for _ in range(self.chance.randint(1, 4)):
                self.leave_in_part()

    def employ(self) -> Worker:
        self.employed += 1
        batches = self.chance.randint(5, 25)
        draw = np.random.default_rng(self.chance.getrandbits(32))
        return Worker(
            name=f"worker-{self.employed}",
            routes=self.routes(),
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
        server = Server(number, incarnation, store, Generations(store))
        if self.chance.random() < 0.5:
            # There is no map yet, for others have not joined.
            server.generations.apply_directive(self.directive(mapped=False))
        self.incarnations[number] = incarnation
        self.living[number] = server

    def directive(self, *, mapped: bool = True) -> master_pb2.Directive:
        last = max(self.incarnations, default=-1) + 1
        return master_pb2.Directive(
            generation=self.generation,
            restore_from=self.restore_from,
            ps_map=self.map.to_wire() if mapped else None,
            ps_incarnations=[self.incarnations.get(number, "") for number in range(last)],
        )

    def tell(self, server: Server) -> None:
        """A server hears what the master wants."""
        for directive in [*server.directives, self.directive()]:
            server.generations.apply_directive(directive)
        server.directives.clear()

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
        if new is None and not self.models_to_lose:
            return
        del self.living[server.number]
        del self.incarnations[server.number]
        if self.chance.random() < 0.4:
            server.cut_off = True
            self.zombies.append(server)
        if new is None:
            self.begin_again()
        else:
            self.publish(new)

    def begin_again(self) -> None:
        """The model is lost: all go back to the checkpoint, or to the beginning."""
        self.generation += 1
        self.models_to_lose -= 1
        for server in self.living.values():
            if self.chance.random() < 0.5:
                server.generations.apply_directive(self.directive(mapped=False))
        for number in sorted(self.wanted - set(self.living)):
            self.start(number)
        self.map = first_map(sorted(self.wanted), version=self.map.version + 1)
        self.fences.clear()
        self.workers = [self.employ() for _ in self.workers]

    def end_worker(self) -> None:
        """A worker has ended, or cannot be reached by the platform any more."""
        there = [worker for worker in self.workers if not worker.ended]
        if there and self.workers_to_end:
            self.workers_to_end -= 1
            worker = self.chance.choice(there)
            worker.ended = True
            worker.dead = self.chance.random() < 0.5
            self.fences.append(Fence(worker))
            self.workers.append(self.employ())

    def fence(self, fence: Fence) -> bool:
        """Asks all servers, or hears what they say."""
        still = []
        for server, fencing in fence.asked:
            if server not in self.living.values():
                continue
            if not server.store.state.is_replicated(fencing.waiting):
                still.append((server, fencing))
                continue
            fenced = fencing.answer()
            fence.heard |= fenced.buckets
            if fenced.buckets.any():
                fence.least = min(fence.least, fenced.last.sequence)
        moved = len(still) < len(fence.asked)
        fence.asked = still
        if fence.heard.all():
            assert fence.least >= fence.worker.acknowledged, "what was acknowledged is trained again"
            fence.worker.credited = fence.least
            self.fences.remove(fence)
            return True
        if not fence.asked:
            for number, server in self.living.items():
                # One that cannot be reached is asked again.
                if number in self.map.servers and (self.settling or self.chance.random() < 0.8):
                    try:
                        fencing = server.store.master.begin_fence(
                            fence.worker.name, generation=self.generation
                        )
                    except ServerFailure:
                        continue
                    fence.asked.append((server, fencing))
        return moved

    def come_back(self) -> None:
        for number in sorted(self.wanted - set(self.living)):
            self.start(number)
            self.tell(self.living[number])

    def scale(self) -> None:
        number = self.chance.randint(0, 5)
        if number in self.wanted and len(self.wanted) > 2:
            self.wanted.discard(number)
        else:
            self.wanted.add(number)

    def plan(self) -> None:
        filled, taken = {}, []
        for server in self.living.values():
            status = server.store.master.status()
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
        if self.living:
            server = self.chance.choice(list(self.living.values()))
            if self.chance.random() < 0.8:
                self.tell(server)
            else:
                # It takes its time, and others know better by then.
                server.directives.append(self.directive())

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
        for outbox in server.store.peers.wait_for_outboxes(
            list(server.store.state.peers.outboxes.values()), seconds=0
        ):
            if not self.settling and self.chance.random() < 0.4:
                # Connections are not equally fast.
                continue
            known, position = server.sent.get(outbox.peer, (outbox, 0))
            if known is not outbox:
                position = 0
            peer = self.find(outbox.peer, outbox.incarnation)
            if peer is None:
                continue
            generation = server.store.generation
            if self.chance.random() < 0.05:
                # The connection breaks; all that is not known to have arrived is sent again.
                try:
                    position = peer.store.peers.received(server.number, server.incarnation, generation)
                except ServerFailure:
                    continue
            pending = server.store.peers.next_entry(outbox, position, seconds=0)
            if pending is None:
                server.sent[outbox.peer] = (outbox, position)
                continue
            entry = ps_pb2.Entry.FromString(pending[1])
            body = memoryview(b"".join(pending[2]))
            try:
                peer.store.peers.receive(
                    server.number,
                    server.incarnation,
                    generation,
                    entry,
                    unpack(entry.buckets),
                    call_codec.decode_entry(entry, body),
                )
            except ServerFailure:
                continue
            moved = True
            server.sent[outbox.peer] = (outbox, entry.position)
            server.acks.append((outbox, entry.position))
        return moved

    def acknowledge(self, server: Server) -> bool:
        if not server.acks:
            return False
        outbox, position = server.acks.pop(0)
        server.store.peers.acknowledge(outbox, position)
        return True

    # -- workers ---------------------------------------------------------------------------------------------

    def work(self, worker: Worker) -> bool:
        """Sends a call, receives an answer, or gets the newest map."""
        if worker.dead or worker.credited is not None:
            return False
        if worker.left is None:
            if worker.ready and not worker.refused:
                if worker.sequence == worker.batches:
                    return False
                worker.sequence += 1
                worker.tries = 0
            worker.refused = False
            worker.pulling = worker.ready and self.is_to_pull(worker)
            worker.alone = worker.pulling and self.settling
            worker.left = ALL.copy()
        if worker.pulling:
            # Of each server, if it works: this is about pushes.
            moved = False
            for _ in worker.routes.map.servers:
                moved = self.pull(worker) or moved
            return moved
        still = []
        for server, mask, call in worker.asked:
            if server not in self.running() or self.chance.random() < (0 if self.settling else 0.02):
                # It is gone, or the answer is lost: it will be asked again.
                continue
            if server.store.state.is_replicated(call.waiting):
                answer = call.answer()
                done = mask if answer.moved is None else mask & ~answer.moved
                worker.left &= ~done
                if isinstance(answer, PushResult) and done.any() and not answer.accepted:
                    worker.refused = True
            else:
                still.append((server, mask, call))
        worker.asked = still
        if not worker.left.any():
            worker.left = None
            worker.ready = True
            if worker.refused:
                # Each time because of another worker's batch.
                worker.tries += 1
                assert not worker.alone, "it is refused for nothing"
                assert worker.tries <= sum(each.batches for each in self.workers), "it never gets through"
            else:
                worker.acknowledged = worker.sequence
            return True
        busy = np.zeros(BUCKETS, np.bool_)
        for _, mask, _ in worker.asked:
            busy |= mask
        found, mask = self.turn_to(worker, worker.left & ~busy)
        if found is None:
            return False
        try:
            call = self.push(worker, found, mask) if worker.ready else self.initialize(found, mask)
        except WorkerFenced:
            assert worker.ended
            return False
        except ServerFailure:
            return False
        worker.asked.append((found, mask, call))
        return True

    def is_to_pull(self, worker: Worker) -> bool:
        if self.modulated:
            # Now and then only: much of what is pushed is old.
            return bool((worker.versions == UNKNOWN).all()) or self.chance.random() < 0.3
        return self.strict

    def turn_to(self, worker: Worker, wanted: Mask) -> tuple[Server | None, Mask]:
        """A server with some of these buckets, as far as the worker knows; and which."""
        if self.chance.random() < self.freshness or self.settling:
            worker.routes = self.routes()
        owners = np.array(worker.routes.map.primary)
        if not wanted.any():
            return None, wanted
        number = self.chance.choice(np.unique(owners[wanted]).tolist())
        # A worker with an old map may well reach a server that was given up.
        found = [server for server in self.running() if server.number == number]
        return self.chance.choice(found) if found else None, wanted & (owners == number)

    def pull(self, worker: Worker) -> bool:
        if not worker.pulling or worker.left is None:
            return False
        server, mask = self.turn_to(worker, worker.left)
        if server is None:
            return False
        try:
            pulled = server.store.workers.pull(
                lambda pulled: pulled, generation=self.generation, buckets=mask
            )
        except ServerFailure:
            return False
        assert pulled.moved is not None
        done = mask & ~pulled.moved
        write_down(worker.versions, done, pulled.version, pulled.newer)
        worker.left &= ~done
        if not worker.left.any():
            worker.pulling, worker.left = False, ALL.copy()
        return bool(done.any())

    def initialize(self, server: Server, mask: Mask) -> PendingInitialize:
        heads, parts = share_of({"trainable": self.drawn, "state": {}}, DENSE_BUCKETS, mask)
        request = ps_pb2.InitializeRequest(
            generation=self.generation,
            arrays=heads,
            optimizer=self.optimizer,
            tables=[table_config(TABLE)],
            buckets=pack(mask),
        )
        body = memoryview(b"".join(parts))
        initial = read_initialize(request, body)
        return server.store.workers.begin_initialize(
            initial, generation=self.generation, buckets=mask, message=request, body=(body,)
        )

    def push(self, worker: Worker, server: Server, mask: Mask) -> PendingPush:
        request, body = self.push_of(worker, mask)
        for other in self.workers:
            other.alone = other.alone and other is worker
        return server.store.workers.begin_push(read_push(request, body), message=request, body=(body,))

    def push_of(self, worker: Worker, mask: Mask) -> tuple[ps_pb2.PushRequest, memoryview]:
        version, newer = within(worker.versions, mask)
        request = ps_pb2.PushRequest(
            worker=worker.name,
            sequence=worker.sequence,
            version=version,
            newer=to_wire(newer),
            learning_rate=1.0,
            generation=self.generation,
            buckets=pack(mask),
        )
        if worker.is_bad(worker.sequence):
            request.not_finite = "t"
            return request, memoryview(b"")
        minus = {name: -np.ones(3, np.float32) for name in DENSE}
        heads, parts = share_of({"trainable": minus, "state": {}}, DENSE_BUCKETS, mask)
        request.arrays.extend(heads)
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
        if self.modulated:
            # How much of it, is another matter.
            return
        least = sum(worker.good(worker.acknowledged) for worker in self.workers) // self.waits
        if not any(worker.acknowledged for worker in self.workers):
            return
        for number, server in self.living.items():
            store = server.store
            if not store.state.is_ready or store.generation != self.generation:
                continue
            with store.state.lock:
                serving = store.state.roles.serving & (np.array(self.map.primary) == number)
                for name, value in store.state.bucket_store.values(serving)[0].items():
                    assert (value >= least).all(), (name, value, least)
                if serving.any():
                    mine = serving[ID_BUCKETS]
                    rows = self.sums(store, serving)
                    known = (worker.sightings(worker.acknowledged) for worker in self.workers)
                    acknowledged = sum(known, np.zeros(len(IDS)))[mine]
                    assert (rows >= acknowledged[:, None]).all(), (IDS[mine], rows, acknowledged)

    def sums(self, store: Store, mask: Mask) -> NDArray[np.float64]:
        """Of each id in some buckets, what all pushes have added up to: those that were applied, those that wait."""
        tables = store.state.bucket_store.tables
        mine = mask[ID_BUCKETS]
        rows = np.empty((int(mine.sum()), TABLE.width), np.float32)
        tables.gather_into(TABLE.name, IDS[mine], rows)
        waiting = np.zeros((len(IDS), TABLE.width))
        arrays = tables.waiting_groups(mask).get(f"waiting:{TABLE.name}", {})
        for key, ids in arrays.items():
            if key.endswith("/ids"):
                np.subtract.at(waiting, np.searchsorted(IDS, ids), arrays[key.replace("/ids", "/values")])
        found: NDArray[np.float64] = rows * np.float64(self.waits) + waiting[mine]
        return found

    def check_all(self) -> None:
        seen = np.zeros(BUCKETS, int)
        copies = Copies()
        # Of each worker: the last batch that each bucket has had.
        last: dict[str, NDArray[np.int64]] = {
            worker.name: np.full(BUCKETS, -1, np.int64) for worker in self.workers
        }
        for number, server in self.living.items():
            primary = np.array(self.map.primary) == number
            backup = np.array(self.map.backup) == number
            seen += primary
            store = server.store
            with store.state.lock:
                assert (store.state.roles.serving == primary).all()
                for history in store.state.bucket_store.histories.select(primary | backup):
                    had = {
                        worker.name: history.last.get(worker.name, NOTHING).sequence
                        for worker in self.workers
                    }
                    if self.modulated:
                        copies.compare(store, history.mask, self.sums(store, history.mask))
                    else:
                        self.check_history(store, history.mask, had)
                    pushes = sum(worker.good(had[worker.name]) for worker in self.workers)
                    assert history.waiting == pushes % self.waits
                    assert history.refused == sum(had.values()) - pushes
                    for name, batch in had.items():
                        known = last[name][history.mask]
                        assert np.isin(known, (-1, batch)).all(), f"two copies differ in batches of {name}"
                        last[name][history.mask] = batch
        assert (seen == 1).all()
        for worker in self.workers:
            if worker.credited is None:
                assert (last[worker.name] == worker.batches).all()
            else:
                assert worker.acknowledged <= worker.credited
                assert last[worker.name].min() == worker.credited, "what a bucket lacks is counted as done"
                assert last[worker.name].max() <= worker.credited + 1

    def check_history(self, store: Store, mask: Mask, had: dict[str, int]) -> None:
        """These buckets are what so many batches of each worker make of them."""
        pushes = sum(worker.good(had[worker.name]) for worker in self.workers)
        for name, value in store.state.bucket_store.values(mask)[0].items():
            np.testing.assert_array_equal(
                value, np.full(3, pushes // self.waits), err_msg=f"{name} on {store.number}"
            )
        wanted = sum((worker.sightings(had[worker.name]) for worker in self.workers), np.zeros(len(IDS)))
        wanted = np.repeat(wanted[mask[ID_BUCKETS], None], TABLE.width, axis=1)
        np.testing.assert_array_equal(self.sums(store, mask), wanted)

    def check_fresh(self) -> None:
        """Whatever has been, the gradient of one who is alone is not old."""
        before = self.dense()
        worker = Worker(name="last", routes=self.routes(), batches=1, ready=True)
        self.workers.append(worker)
        self.settle()
        for name, value in self.dense().items():
            np.testing.assert_allclose(value, before[name] + 1, rtol=1e-5, err_msg=name)

    def dense(self) -> dict[str, NDArray[np.float32]]:
        found: dict[str, NDArray[np.float32]] = {}
        for server in self.living.values():
            with server.store.state.lock:
                values, _ = server.store.state.bucket_store.values(server.store.state.roles.serving)
                found |= {name: value.copy() for name, value in values.items()}
        assert found.keys() == DENSE.keys()
        return found

    # -- time ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        for fence in list(self.fences):
            if self.chance.random() < 0.1:
                self.fence(fence)
        # Best during a handover.
        if self.chance.random() < (0.05 if self.map.handover else 0.002):
            self.end_worker()
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
        for _ in range(2000):
            before = self.map.version
            self.plan()
            moved = self.map.version != before
            for server in list(self.living.values()):
                self.tell(server)
            for server in list(self.living.values()):
                # What is acknowledged makes room for more.
                while self.deliver(server) or self.acknowledge(server):
                    moved = True
            for worker in self.workers:
                moved = self.work(worker) or moved
            for fence in list(self.fences):
                moved = self.fence(fence) or moved
            if not moved and not self.fences and all(self.is_done(worker) for worker in self.workers):
                return
        raise AssertionError("it never comes to rest")

    def begin(self) -> None:
        """Up to where all workers are ready to push."""
        while not all(worker.ready for worker in self.workers):
            for worker in self.workers:
                if not worker.ready:
                    self.work(worker)
            for server in self.running():
                while self.deliver(server) or self.acknowledge(server):
                    pass

    def leave_in_part(self) -> None:
        """A worker dies in the middle of its first push: from then on buckets differ in how often they were updated."""
        worker = self.employ()
        worker.ready, worker.sequence, worker.pulling, worker.left = True, 1, True, ALL.copy()
        while worker.pulling:
            self.pull(worker)
        count = self.chance.randint(1, len(self.living) - 1)
        for server in self.chance.sample(list(self.living.values()), count):
            self.push(worker, server, np.array(self.map.primary) == server.number)
        worker.ended = worker.dead = True
        self.workers.append(worker)
        self.fences.append(Fence(worker))

    def is_done(self, worker: Worker) -> bool:
        return worker.credited is not None or worker.acknowledged == worker.batches

    def run(self, steps: int) -> None:
        with mock.patch.object(peers, "PART_BYTES", self.part_bytes):
            for _ in range(steps):
                self.step()
            self.settle()
            self.check_all()
            if self.modulated:
                self.check_fresh()
        assert NO_SERVER not in self.map.backup or len(self.wanted) < 2
