"""However the samples are cut into shards, every metric has the same value, to the last bit."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from elasticdl.worker.scoring.metric_base import Metric
from elasticdl.worker.scoring.metrics import (
    AUC,
    F1,
    Accuracy,
    LogLoss,
    Mean,
    MeanAbsoluteError,
    MeanSquaredError,
    Precision,
    Recall,
    RootMeanSquaredError,
    TopKAccuracy,
)

BINARY: list[Callable[[], Metric]] = [
    Accuracy,
    AUC,
    lambda: AUC(num_thresholds=7),
    Precision,
    Recall,
    F1,
    LogLoss,
    MeanSquaredError,
    RootMeanSquaredError,
    MeanAbsoluteError,
    lambda: Mean(lambda labels, predictions: np.exp(predictions) - labels),
]
CLASSES: list[Callable[[], Metric]] = [
    Accuracy,
    lambda: TopKAccuracy(2),
    LogLoss,
    lambda: Precision(num_classes=4),
    lambda: Recall(num_classes=4, average="micro"),
    lambda: F1(num_classes=4),
]


def value_in_parts(
    make: Callable[[], Metric], labels: NDArray[Any], predictions: NDArray[Any], cuts: list[int]
) -> float:
    """Each part by a metric of its own, in batches of 3, and the states added up as the master does."""
    edges = [0, *sorted(cut % (len(labels) + 1) for cut in cuts), len(labels)]
    added: list[NDArray[Any]] | None = None
    for start, end in itertools.pairwise(edges):
        metric = make()
        for at in range(start, end, 3):
            metric.update(labels[at : min(at + 3, end)], predictions[at : min(at + 3, end)])
        states = metric.states()
        added = list(states) if added is None else [a + b for a, b in zip(added, states, strict=True)]
    assert added is not None
    merged = make()
    merged.load(added)
    return merged.result()


def same(a: float, b: float) -> bool:
    return a == b or (np.isnan(a) and np.isnan(b))


@pytest.mark.parametrize("make", BINARY)
@given(
    samples=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_two_classes(make: Callable[[], Metric], samples: list[tuple[bool, float]], cuts: list[int]) -> None:
    labels = np.array([label for label, _ in samples], np.int64)
    predictions = np.array([score for _, score in samples], np.float64)
    whole = make()
    whole.update(labels, predictions)
    assert same(value_in_parts(make, labels, predictions, cuts), whole.result())


@pytest.mark.parametrize("make", CLASSES)
@given(
    seed=st.integers(0, 1000),
    size=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_several_classes(make: Callable[[], Metric], seed: int, size: int, cuts: list[int]) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, size)
    predictions = random.dirichlet(np.ones(4), size).astype(np.float32)
    whole = make()
    whole.update(labels, predictions)
    assert same(value_in_parts(make, labels, predictions, cuts), whole.result())


@pytest.mark.parametrize("make", [*BINARY, *CLASSES])
def test_reset_forgets_everything(make: Callable[[], Metric]) -> None:
    metric = make()
    labels, predictions = (np.array([0, 1]), np.array([0.2, 0.7]))
    if make in CLASSES:
        predictions = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    metric.update(labels, predictions)
    metric.reset()
    for state, fresh in zip(metric.states(), make().states(), strict=True):
        np.testing.assert_array_equal(state, fresh)
