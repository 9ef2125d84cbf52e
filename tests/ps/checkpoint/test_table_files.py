"""Tables on disk: whole or what has changed, of any number of servers, for the buckets one wants."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.table_files import TABLES, SavedTables, describe, write_table
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Frozen, Table, TableSpec
from elasticdl.wire import ps_pb2

BUCKETS = 16
SPEC = TableSpec(name="clicks", width=4, admit_after=2, expire_after=6)
ADAM = ps_pb2.OptimizerConfig(name="adam", flavor="keras")


def new_table(spec: TableSpec = SPEC, config: ps_pb2.OptimizerConfig = ADAM) -> Table:
    return Table(spec, make_optimizer(config), buckets=BUCKETS)


def contents(table: Table, buckets: range = range(BUCKETS)) -> dict[int, tuple[object, ...]]:
    """By id: whatever is known of it."""
    found: dict[int, tuple[object, ...]] = {}
    for bucket in buckets:
        rows = table.export(bucket)
        assert rows.slots is not None
        assert rows.steps is not None
        assert rows.seen is not None
        for number, identifier in enumerate(rows.ids.tolist()):
            numbers = (rows.values[number].tobytes(), rows.slots[number].tobytes())
            found[identifier] = (*numbers, int(rows.steps[number]), int(rows.seen[number]))
        assert rows.waiting_ids is not None
        assert rows.waiting_counts is not None
        for identifier, count in zip(rows.waiting_ids.tolist(), rows.waiting_counts.tolist(), strict=True):
            found[identifier] = ("waits", count)
    return found


def save(
    path: Path, table: Table, *, since: Frozen | None = None, buckets: range = range(BUCKETS)
) -> tuple[Path, Frozen]:
    frozen = table.freeze(mark=True)
    with ArrayFileWriter(path) as file:
        write_table(
            file, table, frozen, buckets=buckets, since=dict.fromkeys(buckets, since) if since else {}
        )
        file.finish({TABLES: {table.spec.name: describe(table).as_json()}})
    return path, frozen


def train(table: Table, step: int, chance: np.random.Generator, most: int = 400) -> None:
    ids = chance.integers(0, most, 60)
    table.update(ids, chance.normal(size=(60, 4)).astype(np.float32), learning_rate=0.1, step=step)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False), servers=st.integers(1, 3))
def test_a_chain_of_checkpoints_is_the_table(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, servers: int
) -> None:
    """Servers with some buckets each; between checkpoints they train, rows expire, and a bucket moves."""
    folder = tmp_path_factory.mktemp("chain")
    tables = [new_table() for _ in range(servers)]
    owner = [bucket % servers for bucket in range(BUCKETS)]
    last: list[Frozen | None] = [None] * servers
    numbers = np.random.default_rng(chance.randrange(1 << 30))
    step = 0
    checkpoints: list[list[Path]] = []
    for checkpoint in range(4):
        for _ in range(chance.randrange(1, 5)):
            step += 1
            for number, table in enumerate(tables):
                ids = numbers.integers(0, 400, 60)
                mine = ids[[owner[int(b)] == number for b in buckets_of_ids(ids)]]
                gradients = numbers.normal(size=(len(mine), 4)).astype(np.float32)
                table.update(mine, gradients, learning_rate=0.1, step=step)
                if chance.random() < 0.3:
                    table.expire(step)
        if servers > 1 and chance.random() < 0.5:
            bucket, target = chance.randrange(BUCKETS), chance.randrange(servers)
            if owner[bucket] != target:
                tables[target].delete(bucket)
                tables[target].put(tables[owner[bucket]].export(bucket))
                tables[owner[bucket]].delete(bucket)
                owner[bucket] = target
        files = []
        for number, table in enumerate(tables):
            frozen = table.freeze(mark=chance.random() < 0.8)
            path = folder / f"{checkpoint}-{number}.edl"
            with ArrayFileWriter(path) as file:
                own = [bucket for bucket in range(BUCKETS) if owner[bucket] == number]
                base = last[number]
                since = {} if base is None else dict.fromkeys(own, base)
                complete = write_table(file, table, frozen, buckets=own, since=since)
                assert complete or since
                file.finish({TABLES: {"clicks": describe(table).as_json()}})
            files.append(path)
            last[number] = None if chance.random() < 0.2 else frozen
        checkpoints.append(files)
        expected = {i: row for table in tables for i, row in contents(table).items()}
        restored = new_table()
        with SavedTables(checkpoints) as saved:
            saved.restore(restored)
            joined = [saved.rows("clicks", bucket) for bucket in range(BUCKETS)]
            counts = [saved.count("clicks", bucket) for bucket in range(BUCKETS)]
        assert contents(restored) == expected
        assert counts == [restored.bucket_rows(bucket) for bucket in range(BUCKETS)]
        by_hand = new_table()
        for each in joined:
            if each is not None:
                by_hand.put(replace(each, ids=np.ascontiguousarray(each.ids)))
        assert contents(by_hand) == expected


def buckets_of_ids(ids: object) -> list[int]:
    from elasticdl.ps.embedding.table import as_ids, buckets_of

    return [int(bucket) for bucket in buckets_of(as_ids(ids), BUCKETS)]


def test_increment_holds_only_changed_rows(tmp_path: Path) -> None:
    table = new_table(replace(SPEC, admit_after=1))
    table.gather(np.arange(20_000))
    full, frozen = save(tmp_path / "full.edl", table)
    table.update(np.arange(5), np.ones((5, 4), np.float32), learning_rate=0.1)
    changes, _ = save(tmp_path / "changes.edl", table, since=frozen)
    restored = new_table(table.spec)
    with SavedTables([[full], [changes]]) as saved:
        assert sum(saved.count("clicks", bucket) for bucket in range(BUCKETS)) == 20_000
        saved.restore(restored)
    assert contents(restored) == contents(table)
    with SavedTables([[changes]]) as saved:
        assert saved.bytes("clicks") < 5 * table.row_bytes + BUCKETS * 100


def test_rows_that_are_gone_are_not_written_again(tmp_path: Path) -> None:
    table = new_table(replace(SPEC, admit_after=1))
    table.update(np.arange(20_000), np.ones((20_000, 4), np.float32), learning_rate=0.1, step=5)
    table.update(np.arange(200), np.ones((200, 4), np.float32), learning_rate=0.1, step=1)
    full, frozen = save(tmp_path / "full.edl", table)
    assert table.expire(8) == 200
    table.update(np.arange(20), np.ones((20, 4), np.float32), learning_rate=0.1, step=8)
    changes, _ = save(tmp_path / "changes.edl", table, since=frozen)
    assert changes.stat().st_size * 20 < full.stat().st_size
    restored = new_table(table.spec)
    with SavedTables([[full], [changes]]) as saved:
        assert sum(saved.count("clicks", bucket) for bucket in range(BUCKETS)) == 19_820
        saved.restore(restored)
        rows = [saved.rows("clicks", bucket) for bucket in range(BUCKETS)]
    assert contents(restored) == contents(table)
    ids = np.concatenate([each.ids for each in rows if each is not None])
    assert sorted(ids.tolist()) == [*range(20), *range(200, 20_000)]


def test_training_goes_on_while_a_copy_is_written(tmp_path: Path) -> None:
    table, chance = new_table(), np.random.default_rng(1)
    for step in range(1, 5):
        train(table, step, chance)
    expected, frozen = contents(table), table.freeze()
    with ArrayFileWriter(tmp_path / "x.edl") as file:
        write_table(file, table, frozen, buckets=range(8))
        for step in range(5, 9):
            train(table, step, chance)
        write_table(file, table, frozen, buckets=range(8, BUCKETS))
        file.finish({TABLES: {"clicks": describe(table).as_json()}})
    with pytest.raises(ValueError, match="released"):
        table.export(0, frozen=frozen)
    restored = new_table()
    with SavedTables([[tmp_path / "x.edl"]]) as saved:
        saved.restore(restored)
    assert contents(restored) == expected


def test_chosen_buckets_only(tmp_path: Path) -> None:
    table, chance = new_table(), np.random.default_rng(2)
    for step in range(1, 5):
        train(table, step, chance)
    path, _ = save(tmp_path / "x.edl", table)
    restored = new_table()
    with SavedTables([[path]]) as saved:
        saved.restore(restored, buckets=range(3, 7))
    assert contents(restored) == contents(table, range(3, 7))


def test_slots_of_another_optimizer_are_reset(tmp_path: Path) -> None:
    table, chance = new_table(), np.random.default_rng(3)
    for step in range(1, 5):
        train(table, step, chance)
    path, _ = save(tmp_path / "x.edl", table)
    restored = new_table(config=ps_pb2.OptimizerConfig(name="adagrad", flavor="keras"))
    with SavedTables([[path]]) as saved:
        saved.restore(restored)
    assert len(restored) == len(table)
    for bucket in range(BUCKETS):
        was, now = table.export(bucket), restored.export(bucket)
        np.testing.assert_array_equal(now.ids, was.ids)
        np.testing.assert_array_equal(now.values, was.values)
        assert now.slots is not None
        assert np.all(now.slots == np.float32(0.1))


def test_a_table_of_another_model(tmp_path: Path) -> None:
    table = new_table()
    path, _ = save(tmp_path / "x.edl", table)
    with SavedTables([[path]]) as saved:
        with pytest.raises(UserError, match="clicks have 4 numbers in the checkpoint, and 5 in this model"):
            saved.restore(new_table(replace(SPEC, width=5)))
        other = new_table(replace(SPEC, name="views"))
        saved.restore(other)
        assert len(other) == 0


def test_increment_without_base_is_rejected(tmp_path: Path) -> None:
    table, chance = new_table(), np.random.default_rng(4)
    train(table, 1, chance)
    _, frozen = save(tmp_path / "full.edl", table)
    train(table, 2, chance)
    path, _ = save(tmp_path / "changes.edl", table, since=frozen)
    with (
        SavedTables([[path]]) as saved,
        pytest.raises(UserError, match=r"Bucket 0 of the table clicks is nowhere complete"),
    ):
        saved.restore(new_table())


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    table = new_table()
    one, _ = save(tmp_path / "one.edl", table)
    other, _ = save(tmp_path / "other.edl", table)
    with pytest.raises(UserError, match=r"Bucket 0 of the table clicks is in .*other\.edl and in another"):
        SavedTables([[one, other]])


@pytest.mark.parametrize("cut", [10, 1000])
def test_truncated_table_file_is_reported_as_damage(tmp_path: Path, cut: int) -> None:
    table = new_table()
    train(table, 1, np.random.default_rng(5))
    path, _ = save(tmp_path / "x.edl", table)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(UserError, match="is damaged"):
        SavedTables([[path]])


def test_a_bit_that_has_changed(tmp_path: Path) -> None:
    table = new_table(replace(SPEC, admit_after=1))
    table.gather(np.arange(1000))
    path, _ = save(tmp_path / "x.edl", table)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with SavedTables([[path]]) as saved, pytest.raises(UserError, match=r"the checksum of .* is wrong"):
        saved.restore(new_table(table.spec))
