"""Threads look up and update at once: no update is lost, and no row is seen half updated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2

IDS, WIDTH, ROUNDS, UPDATERS = 2000, 32, 30, 3


def test_updates_and_lookups_at_once() -> None:
    spec = TableSpec(name="t", width=WIDTH, initializer=Initializer(kind="zeros"), expire_after=1000)
    optimizer = make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="keras"))
    table = Table(spec, optimizer, buckets=64)

    def update(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for step in range(ROUNDS):
            ids = chance.permutation(IDS)
            table.update(ids, np.full((IDS, WIDTH), -1.0, np.float32), learning_rate=1.0, step=step)

    def look(seed: int) -> float:
        chance = np.random.default_rng(seed)
        most = 0.0
        for step in range(ROUNDS):
            rows = table.gather(chance.permutation(2 * IDS), step=step)
            # All numbers of a row change at once.
            np.testing.assert_array_equal(rows, np.repeat(rows[:, :1], WIDTH, axis=1))
            most = max(most, float(rows.max()))
            for bucket in range(step % 8, 64, 8):
                exported = table.export(bucket).values
                np.testing.assert_array_equal(exported, np.repeat(exported[:, :1], WIDTH, axis=1))
            table.expire(step)
        return most

    with ThreadPoolExecutor(UPDATERS + 2) as threads:
        updates = [threads.submit(update, seed) for seed in range(UPDATERS)]
        looks = [threads.submit(look, 100 + seed) for seed in range(2)]
        for each in updates:
            each.result()
        assert all(each.result() <= UPDATERS * ROUNDS for each in looks)
    assert np.all(table.gather(np.arange(IDS)) == UPDATERS * ROUNDS)
    assert np.all(table.gather(np.arange(IDS, 2 * IDS)) == 0)
    assert len(table) == 2 * IDS
