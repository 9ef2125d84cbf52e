"""Buckets from one restored server to another, when a worker has initialized only one of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.resharding import read_share
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.storage.bucket_store import BucketStore, InitialModel, Push, ServerSettings
from elasticdl.ps.storage.copy_on_write_snapshot import CopyOnWriteSnapshot
from elasticdl.ps.storage.table_set import RowPart
from elasticdl.wire import ps_pb2

EVERYTHING = np.ones(BUCKETS, np.bool_)
BEFORE = TableSpec(name="users", width=2)
NOW = replace(BEFORE, expire_after=8)
BUCKET = 3


def initial(spec: TableSpec, **options: float) -> InitialModel:
    optimizer = ps_pb2.OptimizerConfig(name="adam", flavor="keras", options=options)
    return InitialModel(
        trainable={"x": np.ones(2, np.float32)},
        state={},
        optimizer=optimizer,
        tables=[spec],
        array_buckets={"x": BUCKET},
    )


def push(bucket_store: BucketStore, sequence: int, ids: range) -> None:
    pushed = Push(
        worker="w",
        sequence=sequence,
        version=0,
        learning_rate=0.1,
        gradients={"x": np.ones(2, np.float32)},
        rows={"users": RowPart(ids=np.array(ids), values=np.ones((len(ids), 2), np.float32))},
    )
    bucket_store.apply(pushed, bucket_store.histories.select(EVERYTHING))


@pytest.fixture
def restored(tmp_path: Path) -> Callable[[], BucketStore]:
    """Makes a server with what another one had after 20 steps."""
    stopped = BucketStore(ServerSettings())
    stopped.initialize(EVERYTHING, initial(BEFORE))
    for sequence in range(1, 21):
        push(stopped, sequence, range(1000))
    path = tmp_path / "ps.edl"
    CopyOnWriteSnapshot.make(stopped, EVERYTHING).write(path, stopped, EVERYTHING)

    def restore() -> BucketStore:
        snapshot, buckets = read_share([path], range(BUCKETS))
        made = BucketStore(ServerSettings())
        made.restore(snapshot.attributes, snapshot.groups, buckets, SavedTables([[path]]), EVERYTHING)
        return made

    return restore


def fill(source: BucketStore, target: BucketStore) -> None:
    attributes, groups, _ = source.export(BUCKET)
    target.put(BUCKET, json.loads(json.dumps(attributes)), groups)


def contents(bucket_store: BucketStore) -> dict[str, Any]:
    groups = {**bucket_store.dense_groups(EVERYTHING), **bucket_store.tables.groups(EVERYTHING)}
    return {
        f"{group}/{name}": array.tolist()
        for group, members in groups.items()
        for name, array in members.items()
    }


def test_uninitialized_server_takes_the_optimizer_of_the_source(restored: Callable[[], BucketStore]) -> None:
    source, target = restored(), restored()
    source.initialize(EVERYTHING, initial(NOW, beta_1=0.5))
    fill(source, target)
    assert target.optimizer_confirmed
    assert target.optimizer == source.optimizer
    assert target.tables.specs == [NOW]
    for sequence in range(1, 13):
        for bucket_store in (source, target):
            push(bucket_store, sequence, range(100))
    assert contents(target) == contents(source)
    assert target.tables.rows == 100


def test_initialized_server_keeps_its_optimizer(restored: Callable[[], BucketStore]) -> None:
    source, target = restored(), restored()
    target.initialize(EVERYTHING, initial(NOW, beta_1=0.5))
    before = contents(target)
    fill(source, target)
    assert target.optimizer != source.optimizer
    assert target.tables.specs == [NOW]
    assert contents(target) == before
