"""A row starts the same on any server and in any order, and as its initializer says."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2

WIDTH = 8


def start(
    ids: Array, kind: str, *, seed: int = 1, name: str = "t", buckets: int = 8, **options: float
) -> Array:
    spec = TableSpec(name=name, width=WIDTH, seed=seed, initializer=Initializer(kind=kind, options=options))
    table = Table(spec, make_optimizer(ps_pb2.OptimizerConfig(name="sgd", flavor="keras")), buckets=buckets)
    return table.gather(ids)


@pytest.mark.parametrize("kind", ["uniform", "normal", "truncated_normal", "glorot_uniform", "glorot_normal"])
def test_a_row_is_the_same_wherever_and_whenever_it_is_made(kind: str) -> None:
    ids = np.arange(-500, 500, dtype=np.int64) * 7919
    order = np.random.default_rng(2).permutation(len(ids))
    first = start(ids, kind)
    np.testing.assert_array_equal(start(ids[order], kind, buckets=64), first[order])
    np.testing.assert_array_equal(start(ids[17:18], kind), first[17:18])
    assert len(np.unique(first)) > 0.99 * first.size
    assert not np.any(start(ids, kind, seed=2) == first)
    assert not np.any(start(ids, kind, name="u") == first)


def test_these_numbers_never_change() -> None:
    """Rows that were never trained are not in checkpoints of other versions either."""
    found = start(np.array([0, -1, 1 << 62], np.int64), "uniform", seed=7, low=0.0, high=1.0)
    expected = [
        [0.30958402, 0.90183556, 0.1806664],
        [0.15131958, 0.07820106, 0.47532848],
        [0.96281874, 0.12946188, 0.6607545],
    ]
    np.testing.assert_array_equal(found[:, :3], np.array(expected, np.float32))


def test_initial_values_follow_their_distribution() -> None:
    ids = np.arange(40_000, dtype=np.int64)
    uniform = start(ids, "uniform", low=-2.0, high=3.0)
    assert uniform.min() >= -2
    assert uniform.max() < 3
    np.testing.assert_allclose([uniform.mean(), uniform.var()], [0.5, 25 / 12], atol=0.02)

    normal = start(ids, "normal", mean=1.0, stddev=2.0)
    np.testing.assert_allclose([normal.mean(), normal.std()], [1.0, 2.0], atol=0.02)
    exact = statistics.NormalDist(1.0, 2.0)
    for below in (-5.0, -1.0, 0.0, 1.0, 2.5, 6.0):
        assert math.isclose(float((normal < below).mean()), exact.cdf(below), abs_tol=0.003)

    truncated = start(ids, "truncated_normal", mean=0.0, stddev=0.5)
    assert np.abs(truncated).max() <= 1.0
    np.testing.assert_allclose(truncated.std(), 0.5 * 0.8796, rtol=0.01)
    # The columns of a row, and rows beside each other, have nothing to do with each other.
    correlations = np.corrcoef(np.concatenate([normal[:-1].T, normal[1:].T])) - np.eye(2 * WIDTH)
    assert np.abs(correlations).max() < 0.025


def test_glorot_is_that_of_the_fans() -> None:
    ids = np.arange(20_000, dtype=np.int64)
    limit = math.sqrt(6 / (100 + 44))
    uniform = start(ids, "glorot_uniform", fan_in=100, fan_out=44)
    assert limit * 0.999 < np.abs(uniform).max() <= limit
    normal = start(ids, "glorot_normal", fan_in=100, fan_out=44)
    np.testing.assert_allclose(normal.std(), math.sqrt(2 / 144), rtol=0.01)


def test_constant_initializers_have_their_value() -> None:
    ids = np.arange(5, dtype=np.int64)
    assert np.all(start(ids, "zeros") == 0)
    assert np.all(start(ids, "constant", value=1.5) == 1.5)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("unifrom", {}, "no initializer 'unifrom'. Did you mean uniform"),
        ("uniform", {"hihg": 1.0}, "no option 'hihg'. Did you mean high"),
        ("normal", {"stddev": math.inf}, "stddev of the initializer normal is inf"),
    ],
)
def test_unknown_initializer_or_option_is_named(kind: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Initializer(kind=kind, options=options)
