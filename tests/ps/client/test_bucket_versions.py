"""Buckets that one server has may have had different numbers of updates: a worker that dies in the middle of a push has
reached some and not others, and then they move. How old a gradient is, is a matter of each bucket by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.resharding import buckets_of_names
from elasticdl.ps.client.parameter_client import ParameterClient, StaleGradients
from elasticdl.ps.core.array_bodies import mask_of
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
MODEL = {f"d{number}": np.zeros(3, np.float32) for number in range(8)}
ONES = {name: np.ones(3, np.float32) for name in MODEL}
HALF = mask_of(range(BUCKETS // 2))
BUCKETS_OF = buckets_of_names({"trainable": {name: value.nbytes for name, value in MODEL.items()}})
# Of the first half, and of the other.
(HIGH, LOW) = (
    [name for name, bucket in BUCKETS_OF["trainable"].items() if HALF[bucket] == first]
    for first in (True, False)
)


def die(store: Store, worker: str) -> None:
    """In the middle of a push: half of the buckets have had it."""
    version = store.master.status().version
    push = Push(
        worker=worker,
        sequence=1,
        version=version,
        learning_rate=1.0,
        gradients={},
        generation=1,
        buckets=HALF,
    )
    assert store.workers.push(push).accepted


def tries(client: ParameterClient, most: int = 5) -> int:
    """How often a batch has to be computed before it is taken, without other workers."""
    for number in range(1, most + 1):
        versions = client.pull().versions
        try:
            client.push(ONES, learning_rate=1.0, versions=versions)
        except StaleGradients:
            continue
        return number
    raise AssertionError("never taken")


@pytest.mark.parametrize("waits", [1, 2])
def test_push_after_partial_pushes_of_dead_workers_is_accepted(start_servers: Any, waits: int) -> None:
    servers = start_servers(asynchronous=False, grads_to_wait=waits)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    for number in range(2 * waits):
        die(servers.stores[0], f"dead-{number}")
    for _ in range(4):
        assert tries(client) == 1


def test_a_fresh_gradient_counts_in_full(start_servers: Any) -> None:
    servers = start_servers(lr_staleness_modulation=True)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    for number in range(4):
        die(servers.stores[0], f"dead-{number}")
    client.push(ONES, learning_rate=1.0, versions=client.pull().versions)
    assert HIGH
    assert LOW
    for name, value in client.pull().trainable.items():
        np.testing.assert_array_equal(value, -np.ones(3), err_msg=name)


def test_staleness_is_counted_per_bucket(start_servers: Any) -> None:
    """And in the buckets that have had nothing since, it is not old at all."""
    servers = start_servers(lr_staleness_modulation=True)
    client = servers.client()
    client.initialize(MODEL, {}, SGD)
    die(servers.stores[0], "dead-0")
    versions = client.pull().versions
    for number in range(1, 5):
        die(servers.stores[0], f"dead-{number}")
    client.push(ONES, learning_rate=1.0, versions=versions)
    pulled = client.pull().trainable
    for name in HIGH:
        np.testing.assert_array_equal(pulled[name], np.full(3, -0.25))
    for name in LOW:
        np.testing.assert_array_equal(pulled[name], -np.ones(3))
