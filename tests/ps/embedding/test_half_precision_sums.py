"""Gradients of float16 that wait for each other: their mean is one of float16, though their sum may not be."""

from __future__ import annotations

import numpy as np

from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.storage.dense_parameters import DenseParameters
from elasticdl.wire import ps_pb2


def trained(*gradients: Array) -> Array:
    """A parameter that was 0, after a step of minus the mean."""
    parameters = DenseParameters({"w": np.zeros(2, np.float16)}, {})
    parameters.use_optimizer(make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="torch")))
    for gradient in gradients:
        parameters.add_pending({"w": gradient})
    parameters.apply_pending(["w"], len(gradients), 1.0, 1)
    assert not parameters.pending
    assert parameters.values["w"].dtype == np.float16
    return parameters.values["w"]


def test_a_sum_too_large_for_their_type() -> None:
    found = trained(np.array([60_000, -40_000], np.float16), np.array([60_000, -48_000], np.float16))
    np.testing.assert_array_equal(found, np.array([-60_000, 44_000], np.float16))


def test_small_ones_are_not_lost_beside_large_ones() -> None:
    small = [np.array([0.5, -0.25], np.float16)] * 511
    found = trained(np.array([2048, 2048], np.float16), *small)
    np.testing.assert_allclose(found, [-(2048 + 255.5) / 512, -(2048 - 127.75) / 512], rtol=1e-3)


def test_pending_float16_gradients_move_to_another_server() -> None:
    first = DenseParameters({"w": np.zeros(1, np.float16)}, {})
    first.add_pending({"w": np.array([60_000], np.float16)})
    other = DenseParameters({}, {})
    other.use_optimizer(make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="torch")))
    other.take(
        {group: {name: a.copy() for name, a in members.items()} for group, members in first.groups().items()}
    )
    other.add_pending({"w": np.array([59_936], np.float16)})
    other.apply_pending(["w"], 2, 1.0, 1)
    np.testing.assert_array_equal(other.values["w"], np.array([-59_968], np.float16))
