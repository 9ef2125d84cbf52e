"""A table behaves like a dict of rows, whatever is done to it in whatever order."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec, buckets_of
from elasticdl.wire import ps_pb2
from tests.random_histories import histories

WIDTH = 3
START = 0.5
# Few enough that they meet again, with the ends of the range among them.
IDS = st.one_of(st.integers(-20, 20), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 40]))
BATCH = st.lists(IDS, max_size=50)


def sgd_with_momentum() -> ps_pb2.OptimizerConfig:
    return ps_pb2.OptimizerConfig(name="sgd", flavor="torch", options={"momentum": 0.5})


class TableAgainstDict(RuleBasedStateMachine):
    @initialize(buckets=st.sampled_from([1, 7, 64]), admit_after=st.integers(1, 3))
    def make(self, buckets: int, admit_after: int) -> None:
        self.admit_after = admit_after
        self.expire_after = 3
        self.spec = TableSpec(
            name="t",
            width=WIDTH,
            initializer=Initializer(kind="constant", options={"value": START}),
            admit_after=admit_after,
            expire_after=self.expire_after,
        )
        self.buckets = buckets
        self.table = self.new_table()
        # By id: value, momentum, the step of the last update; and how often others have been updated, and when.
        self.rows: dict[int, tuple[Array, Array, int]] = {}
        self.sightings: dict[int, tuple[int, int]] = {}
        self.step = 1

    def new_table(self) -> Table:
        return Table(self.spec, make_optimizer(sgd_with_momentum()), buckets=self.buckets)

    def fresh(self) -> tuple[Array, Array, int]:
        return np.full(WIDTH, START, np.float32), np.zeros(WIDTH, np.float32), self.step

    @rule(ids=BATCH, create=st.booleans())
    def gather(self, ids: list[int], create: bool) -> None:
        found = self.table.gather(np.array(ids, np.int64), step=self.step, create=create)
        for identifier in ids if create and self.admit_after == 1 else ():
            self.rows.setdefault(identifier, self.fresh())
        expected = [self.rows.get(identifier, self.fresh())[0] for identifier in ids]
        np.testing.assert_array_equal(found, np.array(expected, np.float32).reshape(len(ids), WIDTH))

    @rule(ids=BATCH, chance=st.randoms(use_true_random=False))
    def update(self, ids: list[int], chance: random.Random) -> None:
        # Eighths: sums are exact in any order.
        gradients = np.array([[chance.randrange(-8, 8) / 8] * WIDTH for _ in ids], np.float32)
        gradients = gradients.reshape(len(ids), WIDTH)
        self.table.update(np.array(ids, np.int64), gradients, learning_rate=0.25, step=self.step)
        sums: dict[int, Array] = {}
        for identifier, gradient in zip(ids, gradients, strict=True):
            sums[identifier] = sums.get(identifier, np.zeros(WIDTH, np.float32)) + gradient
        for identifier, gradient in sums.items():
            if identifier not in self.rows:
                count = self.sightings.pop(identifier, (0, 0))[0] + 1
                if count < self.admit_after:
                    self.sightings[identifier] = (count, self.step)
                    continue
            value, momentum, _ = self.rows.get(identifier, self.fresh())
            momentum = momentum * np.float32(0.5) + gradient
            self.rows[identifier] = (value - momentum * np.float32(0.25), momentum, self.step)

    @rule(which=st.integers(0, 63))
    def delete_a_bucket(self, which: int) -> None:
        bucket = which % self.buckets
        gone = self.of_bucket(self.rows, bucket)
        assert self.table.delete(bucket) == len(gone)
        for identifier in gone:
            del self.rows[identifier]
        for identifier in self.of_bucket(self.sightings, bucket):
            del self.sightings[identifier]

    def of_bucket(self, ids: Iterable[int], bucket: int) -> list[int]:
        return [i for i in ids if buckets_of(np.array([i], np.int64), self.buckets)[0] == bucket]

    @rule()
    def move_everything_elsewhere(self) -> None:
        other = self.new_table()
        for bucket in range(self.buckets):
            other.put(self.table.export(bucket))
        self.table = other

    @rule(steps=st.integers(1, 3))
    def time_goes_by(self, steps: int) -> None:
        self.step += steps
        before = self.step - self.expire_after
        gone = [identifier for identifier, row in self.rows.items() if row[2] < before]
        assert self.table.expire(self.step) == len(gone)
        for identifier in gone:
            del self.rows[identifier]
        self.sightings = {i: sighting for i, sighting in self.sightings.items() if sighting[1] >= before}

    @invariant()
    def the_same_rows(self) -> None:
        if not hasattr(self, "table"):
            return
        assert len(self.table) == len(self.rows)
        seen: set[int] = set()
        for bucket in range(self.buckets):
            rows = self.table.export(bucket)
            assert self.table.bucket_rows(bucket) == len(rows.ids)
            assert rows.seen is not None
            assert rows.slots is not None
            assert rows.waiting_ids is not None
            assert rows.waiting_counts is not None
            assert rows.waiting_seen is not None
            assert rows.complete
            waiting = zip(rows.waiting_ids, rows.waiting_counts, rows.waiting_seen, strict=True)
            assert {int(i): (int(n), int(last)) for i, n, last in waiting} == {
                i: self.sightings[i] for i in self.of_bucket(self.sightings, bucket)
            }
            for number, identifier in enumerate(rows.ids.tolist()):
                value, momentum, last = self.rows[identifier]
                np.testing.assert_array_equal(rows.values[number], value)
                np.testing.assert_array_equal(rows.slots[number, 0], momentum)
                assert rows.seen[number] == last
                seen.add(identifier)
        assert seen == self.rows.keys()


TableAgainstDict.TestCase.settings = histories(60, steps=25)
TestTableAgainstDict = pytest.mark.soak(TableAgainstDict.TestCase)
