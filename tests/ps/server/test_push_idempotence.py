"""A batch counts once, however often it is pushed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.server_errors import WorkerFenced


def test_a_repeated_push_gets_the_same_reply_and_changes_nothing(make_store: Any) -> None:
    small = make_store()
    first = small.push([1.0, 0.0], sequence=1)
    small.push([0.0, 2.0], worker="worker-1", sequence=1)
    again = small.push([1.0, 0.0], sequence=1)
    assert again == first
    assert small.x == [0.5, 1.0]
    assert small.version == 2
    assert small.store.master.status().pushes == 2


def test_the_next_number_is_another_batch(make_store: Any) -> None:
    small = make_store()
    for sequence in (1, 2, 5):
        small.push([1.0, 1.0], sequence=sequence)
    assert small.x == [-0.5, 0.5]


def test_an_older_number_is_an_error(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0], sequence=3)
    with pytest.raises(ValueError, match="batch 2 of worker-0 comes after batch 3"):
        small.push([1.0, 1.0], sequence=2)
    assert small.version == 1


def test_numbers_are_those_of_a_worker(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0], sequence=7, worker="worker-0")
    small.push([1.0, 1.0], sequence=7, worker="worker-1")
    small.push([1.0, 1.0], sequence=1, worker="worker-2")
    assert small.version == 3


def test_a_fenced_worker_is_refused_and_its_last_batch_known(make_store: Any) -> None:
    small = make_store()
    small.push([1.0, 1.0], sequence=1, lease_id=4, position=10, batches=1)
    small.push([1.0, 1.0], sequence=2, lease_id=4, position=20, batches=2)
    last = small.store.master.fence("worker-0", generation=1).last
    assert (last.sequence, last.lease_id, last.position, last.batches) == (2, 4, 20, 2)
    for sequence in (2, 3):
        with pytest.raises(WorkerFenced, match="worker-0"):
            small.push([1.0, 1.0], sequence=sequence)
    assert small.version == 2
    small.push([1.0, 1.0], worker="worker-1")
    assert small.version == 3


def test_a_worker_that_never_pushed_can_be_fenced(make_store: Any) -> None:
    small = make_store()
    assert small.store.master.fence("worker-9", generation=1).last.sequence == 0
    with pytest.raises(WorkerFenced):
        small.push([1.0, 1.0], worker="worker-9")
    np.testing.assert_array_equal(small.x, [1.0, 2.0])
