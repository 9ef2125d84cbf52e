"""Synchronous training: the mean of so many gradients is one update, and old ones are computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.storage.bucket_store import Push
from elasticdl.wire import ps_pb2


def test_the_mean_of_n_gradients_is_one_update(make_store: Any) -> None:
    small = make_store(grads_to_wait=3)
    assert small.push([3.0, 0.0], worker="a").version == 0
    assert small.push([0.0, 3.0], worker="b").version == 0
    assert small.x == [1.0, 2.0]
    assert small.push([3.0, 3.0], worker="a", sequence=2).version == 1
    np.testing.assert_allclose(small.x, [1.0 - 0.5 * 2, 2.0 - 0.5 * 2])
    # The next three start from nothing.
    for sequence in (3, 4, 5):
        small.push([1.0, 1.0], worker="a", sequence=sequence, version=1)
    np.testing.assert_allclose(small.x, [-0.5, 0.5])


def test_grads_to_wait_above_one_overrides_asynchronous(make_store: Any) -> None:
    small = make_store(grads_to_wait=2, asynchronous=True)
    small.push([1.0, 1.0], worker="a")
    assert small.version == 0


@pytest.mark.parametrize("tolerance", [0, 2])
def test_gradients_too_old_are_refused(make_store: Any, tolerance: int) -> None:
    small = make_store(asynchronous=False, sync_version_tolerance=tolerance)
    for sequence in range(1, 6):
        assert small.push([0.0, 0.0], worker="a", sequence=sequence, version=sequence - 1).accepted
    before = small.x
    refused = small.push([1.0, 1.0], worker="b", version=4 - tolerance)
    assert not refused.accepted
    assert refused.version == 5
    assert small.x == before
    assert small.push([1.0, 1.0], worker="b", version=5 - tolerance).accepted
    assert small.x != before


def test_a_refused_batch_comes_again_under_its_number(make_store: Any) -> None:
    """And a server that had taken it passes over it: the batch counts once on each."""
    taking, refusing = make_store(asynchronous=False), make_store(asynchronous=False)
    refusing.push([0.0, 0.0], worker="other")
    assert taking.push([1.0, 0.0], worker="w", sequence=1, version=0).accepted
    assert not refusing.push([1.0, 0.0], worker="w", sequence=1, version=0).accepted
    assert taking.push([2.0, 0.0], worker="w", sequence=1, version=1).accepted
    assert refusing.push([2.0, 0.0], worker="w", sequence=1, version=1).accepted
    assert taking.x == [0.5, 2.0]
    assert refusing.x == [0.0, 2.0]


def test_waiting_gradients_are_applied_when_flushed(make_store: Any) -> None:
    small = make_store(grads_to_wait=4)
    small.push([2.0, 0.0], worker="a")
    small.push([4.0, 0.0], worker="b")
    assert small.store.master.freeze("without", generation=1) == 0
    assert small.store.master.freeze("with", generation=1, flush=True) == 1
    np.testing.assert_allclose(small.pull(frozen="without").trainable["x"], [1.0, 2.0])
    np.testing.assert_allclose(small.pull(frozen="with").trainable["x"], [1.0 - 0.5 * 3, 2.0])
    assert small.version == 1
    assert small.store.master.freeze("again", generation=1, flush=True) == 1


def test_snapshot_includes_waiting_gradients(make_store: Any) -> None:
    small = make_store(grads_to_wait=2)
    small.push([2.0, 0.0], worker="a")
    small.store.master.freeze("barrier", generation=1)
    small.push([4.0, 0.0], worker="b")
    frozen = small.store.master.frozen("barrier")
    assert frozen.attributes["waiting"] == 1
    np.testing.assert_allclose(frozen.groups["pending"]["x"], [2.0, 0.0])


def test_a_parameter_that_some_gradients_lack_counts_them_as_zero(make_store: Any) -> None:
    small = make_store(grads_to_wait=2)
    small.push([4.0, 0.0], worker="a")
    small.store.workers.push(
        Push(worker="b", sequence=1, version=0, learning_rate=0.5, generation=1, gradients={})
    )
    np.testing.assert_allclose(small.x, [0.0, 2.0])


@pytest.mark.parametrize("grads_to_wait", [1, 2])
def test_a_parameter_that_no_gradient_has_is_left_alone(make_store: Any, grads_to_wait: int) -> None:
    """Also by an optimizer that makes zeros of what has a gradient of zeros."""
    small = make_store(ps_pb2.OptimizerConfig(name="ftrl", flavor="keras"), grads_to_wait=grads_to_wait)
    for worker in ("a", "b"):
        small.store.workers.push(
            Push(worker=worker, sequence=1, version=0, learning_rate=0.5, generation=1, gradients={})
        )
    assert small.version == 2 // grads_to_wait
    assert small.x == [1.0, 2.0]
