"""Checkpoints of changes: whatever happens between them, what is restored is what was there.

Servers train, with backups; rows wait to be admitted, expire and come back; buckets move, servers are lost and new ones
come; copies are frozen for evaluations; checkpoints fail; old ones are removed; jobs go on from one on another number
of servers. A server by itself that has had every push is what all is held against.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint import checkpoint_folders
from elasticdl.ps.checkpoint.increments import Increments, PublishedCheckpoint
from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot
from elasticdl.ps.checkpoint.partial_folders import partial_folder
from elasticdl.ps.checkpoint.resharding import read_share
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.array_bodies import Mask, mask_of
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.embedding.unique_ids import unique
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, Push, ServerSettings
from elasticdl.ps.storage.copy_on_write_snapshot import CopyOnWriteSnapshot
from elasticdl.ps.storage.table_set import RowPart
from elasticdl.wire import ps_pb2

RUNS = 4
IDS = 120
EVERYTHING = np.ones(BUCKETS, np.bool_)
TABLES = [
    TableSpec(name="users", width=2),
    TableSpec(name="clicks", width=3, admit_after=2, expire_after=5),
]
INITIAL = InitialModel(
    trainable={"kernel": np.zeros(4, np.float32)},
    state={},
    optimizer=ps_pb2.OptimizerConfig(name="adam", flavor="keras"),
    tables=TABLES,
)


def contents(bucket_store: BucketStore, mask: Mask = EVERYTHING) -> dict[str, Any]:
    """All there is in some buckets, whatever the order of rows."""
    found: dict[str, Any] = {name: value.tobytes() for name, value in bucket_store.values(mask)[0].items()}
    for group, arrays in bucket_store.tables.groups(mask).items():
        parts: dict[str, dict[str, Any]] = {}
        for name, array in arrays.items():
            bucket, _, kind = name.partition("/")
            parts.setdefault(bucket, {})[kind] = array
        for part in parts.values():
            for prefix in ("", "waiting_"):
                kinds = [kind for kind in part if kind.startswith("waiting_") == bool(prefix)]
                for row, identifier in enumerate(part.get(f"{prefix}ids", ())):
                    key = f"{group}/{prefix}{identifier}"
                    found[key] = {kind: part[kind][row].tobytes() for kind in kinds}
    return found


class Job:
    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.numbers = np.random.default_rng(chance.randrange(1 << 30))
        self.increments = Increments(chance.randrange(1, 6))
        self.sequence = self.barriers = self.generation = 0
        self.alone = self.server()
        self.alone.initialize(EVERYTHING, INITIAL)
        self.begin(chance.randrange(1, 4))
        for number, server in enumerate(self.servers):
            server.initialize(self.held(number), INITIAL)

    @staticmethod
    def server() -> BucketStore:
        return BucketStore(ServerSettings())

    def begin(self, servers: int) -> None:
        """A generation: so many empty servers, and who has what."""
        self.generation += 1
        self.servers = [self.server() for _ in range(servers)]
        self.primary = [bucket * servers // BUCKETS for bucket in range(BUCKETS)]
        self.backup = [(server + 1) % servers if servers > 1 else -1 for server in self.primary]

    def held(self, number: int) -> Mask:
        return mask_of([b for b in range(BUCKETS) if number in (self.primary[b], self.backup[b])])

    def owned(self, number: int) -> list[int]:
        return [b for b in range(BUCKETS) if self.primary[b] == number]

    # -- what happens ----------------------------------------------------------------------------------------

    def push(self) -> None:
        self.sequence += 1
        rows = {}
        for spec in TABLES:
            first = self.chance.randrange(IDS)
            ids, _ = unique(first + self.numbers.integers(0, 100, self.chance.randrange(1, 60)))
            values = self.numbers.normal(size=(len(ids), spec.width)).astype(np.float32)
            rows[spec.name] = RowPart(ids=ids, values=values)
        push = Push(
            worker="worker-0",
            sequence=self.sequence,
            version=self.sequence - 1,
            learning_rate=0.1,
            gradients={"kernel": self.numbers.normal(size=4).astype(np.float32)},
            rows=rows,
            array_buckets=self.alone.buckets,
        )
        self.alone.replay(push, EVERYTHING)
        for number, server in enumerate(self.servers):
            server.replay(push, self.held(number))

    def evaluate(self) -> None:
        for server in self.servers:
            CopyOnWriteSnapshot.make(server, EVERYTHING).release(server)

    def move(self) -> None:
        """Some buckets, to another server, which may have been their backup; the old one may become that."""
        for bucket in self.chance.sample(range(BUCKETS), 20):
            source, target = self.primary[bucket], self.chance.randrange(len(self.servers))
            if target == source:
                continue
            if self.backup[bucket] != target:
                attributes, groups, _ = self.servers[source].export(bucket)
                self.servers[target].put(bucket, attributes, groups)
                if self.backup[bucket] >= 0:
                    self.servers[self.backup[bucket]].drop(mask_of([bucket]))
            self.primary[bucket] = target
            if self.chance.random() < 0.5:
                self.backup[bucket] = source
            else:
                self.backup[bucket] = -1
                self.servers[source].drop(mask_of([bucket]))

    def lose(self) -> None:
        """A server, if others have all it had. Its successor begins empty and is filled."""
        number = self.chance.randrange(len(self.servers))
        if any(self.primary[b] == number and self.backup[b] < 0 for b in range(BUCKETS)):
            return
        self.servers[number] = self.server()
        for bucket in range(BUCKETS):
            if self.primary[bucket] == number:
                self.primary[bucket] = self.backup[bucket]
                self.backup[bucket] = number
            if self.backup[bucket] == number:
                attributes, groups, _ = self.servers[self.primary[bucket]].export(bucket)
                self.servers[number].put(bucket, attributes, groups)

    def save(self) -> None:
        self.barriers += 1
        name = f"barrier-{self.barriers}"
        copies = [
            CopyOnWriteSnapshot.make(server, self.held(number), mark=True)
            for number, server in enumerate(self.servers)
        ]
        expected = contents(self.alone)
        if self.chance.random() < 0.5:
            # Training goes on meanwhile.
            self.push()
        base = self.increments.base(self.generation)
        partial = partial_folder(self.folder, self.barriers, run="one")
        partial.mkdir()
        files, complete = [], True
        for number, (server, copy) in enumerate(zip(self.servers, copies, strict=True)):
            if not self.owned(number):
                continue
            mask, path = mask_of(self.owned(number)), partial / f"ps-{number}.edl"
            written = copy.write(path, server, mask, since=base.copy if base else "")
            server.tables.remember(name, mask, copy.tables)
            copy.release(server)
            files.append(
                checkpoint_folders.SavedFile(name=path.name, bytes=written.bytes, crc32=written.crc32)
            )
            complete &= written.complete
        if self.chance.random() < 0.2:
            # The master died, or the disk was full.
            return
        builds_on = None if complete else base
        manifest = checkpoint_folders.Manifest(
            step=self.barriers,
            files=tuple(files),
            base=builds_on.folder if builds_on else "",
            base_crc32=builds_on.manifest_crc32 if builds_on else 0,
        )
        checkpoint_folders.write_manifest(partial, manifest, None)
        path = checkpoint_folders.publish(partial, self.folder, self.barriers)
        published = PublishedCheckpoint(
            folder=path.name,
            manifest_crc32=checkpoint_folders.file_crc32(path / checkpoint_folders.MANIFEST),
            copy=name,
            generation=self.generation,
        )
        self.increments.add(published, size=sum(file.bytes for file in files), complete=complete)
        checkpoint_folders.prune(self.folder, self.chance.randrange(1, 4))
        assert contents(self.restored(EVERYTHING)) == expected
        self.check_opened(expected)

    def restored(self, mask: Mask) -> BucketStore:
        checkpoint = checkpoint_folders.find_checkpoint(str(self.folder))
        needed = [each.data_files() for each in checkpoint_folders.chain(checkpoint)]
        snapshot, buckets = read_share(checkpoint.data_files(), set(np.flatnonzero(mask).tolist()))
        made = self.server()
        made.restore(snapshot.attributes, snapshot.groups, buckets, SavedTables(needed), mask)
        made.tables.restore_from(None)
        return made

    def check_opened(self, expected: dict[str, Any]) -> None:
        with open_snapshot(self.folder) as snapshot:
            for spec in TABLES:
                saved = snapshot.table(spec.name)
                ids, values = saved.to_numpy()
                there = {
                    key.rpartition("/")[2]: row["values"]
                    for key, row in expected.items()
                    if key.startswith(f"rows:{spec.name}/") and "waiting_" not in key
                }
                assert dict(zip(map(str, ids.tolist()), (v.tobytes() for v in values), strict=True)) == there
                assert saved.rows == len(there)

    def go_back(self) -> None:
        """The model is lost: all workers begin with the last checkpoint, on another number of servers."""
        if not checkpoint_folders.versions(self.folder):
            return
        self.begin(self.chance.randrange(1, 4))
        self.alone = self.restored(EVERYTHING)
        for number in range(len(self.servers)):
            self.servers[number] = self.restored(self.held(number))
            assert contents(self.servers[number]) == contents(self.alone, self.held(number))


@pytest.mark.parametrize("seed", range(RUNS))
def test_whatever_happens(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    job = Job(tmp_path, chance)
    for _ in range(40):
        events = [job.push, job.evaluate, job.move, job.lose, job.save, job.go_back]
        chance.choices(events, weights=[15, 2, 2, 1, 5, 0.5])[0]()
    for number in range(len(job.servers)):
        held = job.held(number)
        assert contents(job.servers[number], held) == contents(job.alone, held)


def test_of_a_bucket_that_has_moved_all_is_written(tmp_path: Path) -> None:
    servers = [BucketStore(ServerSettings()) for _ in range(2)]
    servers[0].initialize(EVERYTHING, INITIAL)
    rows = {"users": RowPart(ids=np.arange(1000), values=np.ones((1000, 2), np.float32))}
    push = Push(worker="w", sequence=1, version=0, learning_rate=0.1, gradients={}, rows=rows)
    servers[0].replay(push, EVERYTHING)
    first = CopyOnWriteSnapshot.make(servers[0], EVERYTHING, mark=True)
    assert first.write(tmp_path / "1.edl", servers[0], EVERYTHING).complete
    servers[0].tables.remember("barrier-1", EVERYTHING, first.tables)
    attributes, groups, _ = servers[0].export(7)
    servers[1].put(7, attributes, groups)
    servers[0].drop(mask_of([7]))
    moved = mask_of([7])
    sizes: list[tuple[bool, int]] = []
    for server, mask in zip(servers, (~moved, moved), strict=True):
        copy = CopyOnWriteSnapshot.make(server, mask, mark=True)
        written = copy.write(tmp_path / f"2-{len(sizes)}.edl", server, mask, since="barrier-1")
        sizes.append((written.complete, written.bytes))
    assert [complete for complete, _ in sizes] == [False, True]
    with SavedTables([[tmp_path / "2-0.edl", tmp_path / "2-1.edl"]]) as saved:
        assert saved.count("users", 7) == len(groups["rows:users"]["7/ids"])
