"""Frozen copies of a table stay as they were while it changes, and tell what has changed from one to the next."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Budget, Frozen, Table, TableRows, TableSpec, buckets_of
from elasticdl.wire import ps_pb2
from tests.random_histories import histories

WIDTH = 2
START = 0.5
EXPIRE = 4
# Enough for several chunks of a bucket.
IDS = 150
MOMENTUM = ps_pb2.OptimizerConfig(name="sgd", flavor="keras", options={"momentum": 0.5})

# By id: value, momentum, last update. And of those without a row: how many updates, and the last.
Rows = dict[int, tuple[float, float, int]]
PendingReplication = dict[int, tuple[int, int]]


def as_dicts(exported: list[TableRows]) -> tuple[Rows, PendingReplication]:
    rows: Rows = {}
    waiting: PendingReplication = {}
    for each in exported:
        assert each.seen is not None
        assert each.slots is not None
        for number, identifier in enumerate(each.ids.tolist()):
            assert identifier not in rows
            value, momentum = each.values[number], each.slots[number, 0]
            assert value[0] == value[1]
            rows[identifier] = (float(value[0]), float(momentum[0]), int(each.seen[number]))
        assert each.waiting_ids is not None
        assert each.waiting_counts is not None
        assert each.waiting_seen is not None
        for identifier, count, last in zip(
            each.waiting_ids.tolist(), each.waiting_counts.tolist(), each.waiting_seen.tolist(), strict=True
        ):
            waiting[identifier] = (count, last)
    return rows, waiting


class TableSnapshots(RuleBasedStateMachine):
    @initialize(buckets=st.sampled_from([1, 3]), admit_after=st.integers(1, 2))
    def make(self, buckets: int, admit_after: int) -> None:
        self.spec = TableSpec(
            name="t",
            width=WIDTH,
            initializer=Initializer(kind="constant", options={"value": START}),
            admit_after=admit_after,
            expire_after=EXPIRE,
        )
        self.buckets = buckets
        self.budget = Budget()
        self.table = self.new_table()
        self.step = 1
        self.copies: dict[Frozen, tuple[Rows, PendingReplication]] = {}
        self.released: dict[Frozen, tuple[Rows, PendingReplication]] = {}

    def new_table(self) -> Table:
        return Table(self.spec, make_optimizer(MOMENTUM), buckets=self.buckets, budget=self.budget)

    def now(self) -> tuple[Rows, PendingReplication]:
        return as_dicts([self.table.export(bucket) for bucket in range(self.buckets)])

    @rule(first=st.integers(0, IDS), count=st.integers(1, IDS))
    def update(self, first: int, count: int) -> None:
        ids = np.arange(first, min(first + count, IDS), dtype=np.int64)
        gradients = np.ones((len(ids), WIDTH), np.float32)
        self.table.update(ids, gradients, learning_rate=0.25, step=self.step)

    @rule(first=st.integers(0, IDS))
    def look_up(self, first: int) -> None:
        self.table.gather(np.arange(first, IDS), step=self.step)

    @rule(steps=st.integers(1, 3))
    def time_goes_by(self, steps: int) -> None:
        self.step += steps
        self.table.expire(self.step)

    @rule(which=st.integers(0, 2))
    def delete_a_bucket(self, which: int) -> None:
        self.table.delete(which % self.buckets)

    @rule(mark=st.booleans())
    def freeze(self, mark: bool) -> None:
        frozen = self.table.freeze(mark=mark)
        assert not self.copies or frozen > max(self.copies)
        self.copies[frozen] = self.now()

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        frozen = data.draw(st.sampled_from(sorted(self.copies)))
        self.table.release(frozen)
        self.released[frozen] = self.copies.pop(frozen)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def what_has_changed_makes_the_later_of_the_earlier(self, data: st.DataObject) -> None:
        later = data.draw(st.sampled_from(sorted(self.copies)))
        known = {**self.copies, **self.released}
        earlier = data.draw(st.sampled_from([each for each in sorted(known) if each <= later]))
        other = self.new_table()
        for bucket in range(self.buckets):
            rows, waiting = known[earlier]
            mine = [i for i in rows if buckets_of(np.array([i]), self.buckets)[0] == bucket]
            other.put(
                TableRows(
                    ids=np.array(mine, np.int64),
                    values=np.array([[rows[i][0]] * WIDTH for i in mine], np.float32).reshape(-1, WIDTH),
                    slots=np.array([[[rows[i][1]] * WIDTH] for i in mine], np.float32).reshape(-1, 1, WIDTH),
                    seen=np.array([rows[i][2] for i in mine], np.uint32),
                    waiting_ids=np.array(list(waiting), np.int64),
                    waiting_counts=np.array([count for count, _ in waiting.values()], np.uint32),
                    waiting_seen=np.array([last for _, last in waiting.values()], np.uint32),
                )
            )
        for bucket in range(self.buckets):
            changes = self.table.export(bucket, frozen=later, since=earlier)
            if changes.complete:
                other.delete(bucket)
            elif changes.forgotten is not None:
                other.forget(bucket, changes.forgotten)
            other.forget_waiting(bucket)
            other.put(changes)
        assert as_dicts([other.export(bucket) for bucket in range(self.buckets)]) == self.copies[later]

    @invariant()
    def copies_are_as_they_were(self) -> None:
        if not hasattr(self, "table"):
            return
        for frozen, (rows, waiting) in self.copies.items():
            exported = [self.table.export(bucket, frozen=frozen) for bucket in range(self.buckets)]
            assert as_dicts(exported) == (rows, waiting)
            values = self.table.gather(np.arange(IDS), frozen=frozen)
            expected = [rows.get(identifier, (START,))[0] for identifier in range(IDS)]
            np.testing.assert_array_equal(
                values, np.repeat(np.array(expected, np.float32)[:, None], WIDTH, 1)
            )

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for frozen in self.copies:
            self.table.release(frozen)
        for bucket in range(self.buckets):
            self.table.delete(bucket)
        assert self.budget.used == 0


TableSnapshots.TestCase.settings = histories(60, steps=25)
TestTableSnapshots = pytest.mark.soak(TableSnapshots.TestCase)


def table_of(*, limit: int = 0, width: int = 8) -> Table:
    spec = TableSpec(name="t", width=width, initializer=Initializer(kind="zeros"))
    config = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    return Table(spec, make_optimizer(config), buckets=16, budget=Budget(limit))


def test_only_what_changes_is_copied() -> None:
    table = table_of()
    ids = np.arange(100_000)
    table.gather(ids)
    before = table.budget.used
    frozen = table.freeze()
    assert table.budget.used == before
    # One row of most chunks: a batch touches rows all over a table.
    chosen = ids[::50]
    table.update(chosen, np.ones((len(chosen), 8), np.float32), learning_rate=1.0)
    # The rows, entries of the index of copies, and what is asked for at once.
    assert table.budget.used - before <= len(chosen) * (table.row_bytes + 64) + 100_000
    table.update(chosen, np.ones((len(chosen), 8), np.float32), learning_rate=1.0)
    assert table.budget.used - before <= len(chosen) * (table.row_bytes + 64) + 100_000
    assert np.array_equal(table.gather(chosen, frozen=frozen), np.zeros((len(chosen), 8), np.float32))
    changes = [table.export(bucket, frozen=table.freeze(), since=frozen) for bucket in range(16)]
    changed = np.concatenate([each.ids for each in changes])
    assert not any(each.complete for each in changes)
    assert set(chosen.tolist()) <= set(changed.tolist())
    # Since a freeze that is no mark, changes are known by chunks of 32 rows.
    assert len(changed) <= len(chosen) * 32
    table.release(frozen)
    assert not np.any(table.gather(chosen) == 0)


def test_since_a_mark_changes_are_known_row_by_row() -> None:
    """Whatever is frozen besides, and though rows have been removed."""
    spec = TableSpec(name="t", width=8, expire_after=5)
    config = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    table = Table(spec, make_optimizer(config), buckets=16)
    ids = np.arange(10_000)
    table.update(ids[:300], np.ones((300, 8), np.float32), learning_rate=1.0, step=1)
    table.update(ids[300:], np.ones((9_700, 8), np.float32), learning_rate=1.0, step=4)
    marked = table.freeze(mark=True)
    for number in range(4):
        table.update(ids[:30] * 100 + number, np.ones((30, 8), np.float32), learning_rate=1.0, step=6)
        table.release(table.freeze())
    assert table.expire(8) == 300 - 4 * 3
    now = table.freeze(mark=True)
    assert sum(table.forget(bucket, ids[5000:5010]) for bucket in range(16)) == 10
    changes = [table.export(bucket, frozen=now, since=marked) for bucket in range(16)]
    assert not any(each.complete for each in changes)
    changed = np.concatenate([each.ids for each in changes]).tolist()
    touched = {100 * n + number for n in range(30) for number in range(4)}
    assert touched <= set(changed)
    # Others are those that were moved to where the removed ones had been.
    assert len(changed) <= len(touched) + 300
    gone = np.concatenate([each.forgotten for each in changes if each.forgotten is not None])
    assert sorted(gone.tolist()) == [n for n in range(300) if n not in touched]


def test_bucket_that_lost_too_many_rows_is_exported_whole() -> None:
    spec = TableSpec(name="t", width=8, expire_after=5)
    config = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    table = Table(spec, make_optimizer(config), buckets=2)
    table.update(np.arange(1000), np.ones((1000, 8), np.float32), learning_rate=1.0, step=1)
    table.update(np.arange(1000, 1100), np.ones((100, 8), np.float32), learning_rate=1.0, step=9)
    marked = table.freeze(mark=True)
    assert table.expire(10) == 1000
    changes = [table.export(bucket, frozen=table.freeze(), since=marked) for bucket in range(2)]
    assert all(each.complete for each in changes)
    assert sorted(np.concatenate([each.ids for each in changes]).tolist()) == list(range(1000, 1100))


def test_a_full_table_can_be_frozen_and_trained() -> None:
    table = table_of(limit=500_000)
    ids = np.arange(20_000)
    table.update(ids, np.ones((len(ids), 8), np.float32), learning_rate=1.0)
    held = np.concatenate([table.export(bucket).ids for bucket in range(16)])
    assert len(held) < len(ids)
    frozen = table.freeze()
    assert table.update(held, np.ones((len(held), 8), np.float32), learning_rate=1.0).found == len(held)
    assert np.all(table.gather(held) == -2)
    assert np.all(table.gather(held, frozen=frozen) == -1)
    table.release(frozen)
    assert table.budget.used <= 500_000


def test_a_released_copy_is_gone_bucket_by_bucket() -> None:
    table = table_of()
    table.gather(np.arange(1000))
    frozen, other = table.freeze(), table.freeze()
    table.release(frozen, bucket=3)
    with pytest.raises(ValueError, match="released"):
        table.export(3, frozen=frozen)
    assert len(table.export(4, frozen=frozen).ids) == len(table.export(4).ids)
    assert len(table.export(3, frozen=other).ids) == len(table.export(3).ids)
    table.release(frozen)
    table.release(frozen)
    with pytest.raises(ValueError, match="released"):
        table.gather([1], frozen=frozen)
    with pytest.raises(ValueError, match="between two frozen copies"):
        table.export(4, frozen=other, since=Frozen(other + 1))


def test_a_copy_has_whole_updates_only() -> None:
    """Threads update all rows alike; in every copy all rows are alike."""
    table = table_of(width=4)
    ids, rounds = np.arange(3000), 40
    gradients = np.full((len(ids), 4), -1.0, np.float32)
    table.gather(ids)

    def update() -> None:
        for _ in range(rounds):
            table.update(ids, gradients, learning_rate=1.0)

    with ThreadPoolExecutor(3) as threads:
        updates = [threads.submit(update) for _ in range(2)]
        held: list[tuple[Frozen, float]] = []
        while not all(each.done() for each in updates):
            frozen = table.freeze()
            rows = table.gather(ids, frozen=frozen)
            assert np.all(rows == rows[0, 0])
            held.append((frozen, float(rows[0, 0])))
            if len(held) > 3:
                oldest, value = held.pop(0)
                for bucket in range(16):
                    assert np.all(table.export(bucket, frozen=oldest).values == value)
                    table.release(oldest, bucket=bucket)
        for each in updates:
            each.result()
    for frozen, value in held:
        assert np.all(table.gather(ids, frozen=frozen) == value)
        table.release(frozen)
    assert np.all(table.gather(ids) == 2 * rounds)


def test_export_of_a_copy_is_the_same_while_rows_change_come_and_go() -> None:
    """A bucket is copied some rows at a time, and updates go on in between."""
    spec = replace(table_of().spec, expire_after=EXPIRE)
    table = Table(spec, make_optimizer(MOMENTUM), buckets=1)
    ids = np.arange(5000)
    table.gather(ids)
    between, over = threading.Lock(), threading.Event()

    def change() -> None:
        chance, step = np.random.default_rng(3), 0
        while not over.is_set():
            step += 1
            with between:
                chosen = chance.choice(2 * len(ids), len(ids) // 2, replace=False)
                table.update(chosen, np.ones((len(chosen), 8), np.float32), learning_rate=0.5, step=step)
                table.forget(0, chosen[::3])
                if step % 7 == 0:
                    table.delete(0)

    def assert_same(one: TableRows, other: TableRows) -> None:
        for name, array in vars(one).items():
            np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)

    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(change)
        try:
            before = table.freeze(mark=True)
            for _ in range(30):
                with between:
                    frozen = table.freeze(mark=True)
                    whole = table.export(0, frozen=frozen)
                    changed = table.export(0, frozen=frozen, since=before)
                for _ in range(3):
                    assert_same(whole, table.export(0, frozen=frozen))
                    later = table.export(0, frozen=frozen, since=before)
                    # After the bucket was deleted nothing is known of what had changed before.
                    assert_same(whole if later.complete else changed, later)
                table.release(before)
                before = frozen
        finally:
            over.set()
        changing.result()


def test_equal_updates_make_equal_tables() -> None:
    """Whatever is looked up in between: that is what a replica relies on."""
    spec = replace(table_of().spec, initializer=Initializer(), admit_after=2, expire_after=5)
    one, other = (Table(spec, make_optimizer(MOMENTUM), buckets=8) for _ in range(2))
    chance = np.random.default_rng(5)
    for step in range(1, 40):
        ids = chance.integers(0, 300, 50)
        gradients = chance.normal(size=(50, 8)).astype(np.float32)
        one.gather(chance.integers(0, 600, 100), step=step)
        for table in (one, other):
            table.update(ids, gradients, learning_rate=0.1, step=step)
        if step % 7 == 0:
            assert one.expire(step) == other.expire(step)
    for bucket in range(8):
        mine, theirs = one.export(bucket), other.export(bucket)
        for name in ("ids", "values", "slots", "seen"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        counts = [
            sorted(zip(each.waiting_ids.tolist(), each.waiting_counts.tolist(), strict=True))  # type: ignore[union-attr]
            for each in (mine, theirs)
        ]
        assert counts[0] == counts[1]
