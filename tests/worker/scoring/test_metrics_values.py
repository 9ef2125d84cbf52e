"""The values are those that scikit-learn gives."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as reference

from elasticdl.worker.scoring.metric_base import Metric
from elasticdl.worker.scoring.metrics import (
    AUC,
    F1,
    Accuracy,
    LogLoss,
    MeanAbsoluteError,
    MeanSquaredError,
    Precision,
    Recall,
    RootMeanSquaredError,
    TopKAccuracy,
)

random = np.random.default_rng(7)
BINARY = random.integers(0, 2, 500)
LOGITS = random.normal(BINARY * 1.5 - 2, 1.0)
SCORES = 1 / (1 + np.exp(-LOGITS))
CLASSES = random.integers(0, 5, 500)
CHANCES = random.dirichlet(np.ones(5), 500)
CHANCES[np.arange(500), CLASSES] += 0.3
CHANCES /= CHANCES.sum(axis=1, keepdims=True)
GUESSES = CHANCES.argmax(axis=1)
TARGETS = random.normal(size=(500, 3))
FOUND = TARGETS + random.normal(size=(500, 3))


def value(metric: Metric, labels: NDArray[Any], predictions: NDArray[Any]) -> float:
    for start in range(0, len(labels), 64):
        metric.update(labels[start : start + 64], predictions[start : start + 64])
    return metric.result()


def test_two_classes() -> None:
    called = SCORES > 0.5
    assert value(Accuracy(), BINARY, SCORES) == pytest.approx(reference.accuracy_score(BINARY, called))
    assert value(Accuracy(threshold=0), BINARY, LOGITS) == pytest.approx(
        reference.accuracy_score(BINARY, called)
    )
    assert value(Precision(), BINARY, SCORES) == pytest.approx(reference.precision_score(BINARY, called))
    assert value(Recall(), BINARY, SCORES) == pytest.approx(reference.recall_score(BINARY, called))
    assert value(F1(), BINARY, SCORES) == pytest.approx(reference.f1_score(BINARY, called))
    assert value(LogLoss(), BINARY, SCORES) == pytest.approx(reference.log_loss(BINARY, SCORES))
    assert value(LogLoss(from_logits=True), BINARY, LOGITS) == pytest.approx(
        reference.log_loss(BINARY, SCORES)
    )


def test_several_classes() -> None:
    logits = np.log(CHANCES) + 3
    assert value(Accuracy(), CLASSES, CHANCES) == pytest.approx(reference.accuracy_score(CLASSES, GUESSES))
    for k in (1, 2, 3):
        expected = reference.top_k_accuracy_score(CLASSES, CHANCES, k=k)
        assert value(TopKAccuracy(k), CLASSES, CHANCES) == pytest.approx(expected)
    for average in ("macro", "micro"):
        for ours, theirs in (
            (Precision, reference.precision_score),
            (Recall, reference.recall_score),
            (F1, reference.f1_score),
        ):
            metric = ours(num_classes=5, average=average)
            assert value(metric, CLASSES, CHANCES) == pytest.approx(theirs(CLASSES, GUESSES, average=average))
    assert value(LogLoss(), CLASSES, CHANCES) == pytest.approx(reference.log_loss(CLASSES, CHANCES))
    assert value(LogLoss(from_logits=True), CLASSES, logits) == pytest.approx(
        reference.log_loss(CLASSES, CHANCES)
    )


def test_regression_metrics_equal_scikit_learn() -> None:
    squared = reference.mean_squared_error(TARGETS, FOUND)
    assert value(MeanSquaredError(), TARGETS, FOUND) == pytest.approx(squared)
    assert value(RootMeanSquaredError(), TARGETS, FOUND) == pytest.approx(np.sqrt(squared))
    assert value(MeanAbsoluteError(), TARGETS, FOUND) == pytest.approx(
        reference.mean_absolute_error(TARGETS, FOUND)
    )


@pytest.mark.parametrize("shift", [0.0, -12.0, 9.0, -300.0])
def test_area_is_within_its_bound_at_any_scale(shift: float) -> None:
    expected = reference.roc_auc_score(BINARY, LOGITS)
    metric = AUC(from_logits=True)
    assert abs(value(metric, BINARY, LOGITS + shift) - expected) <= metric.error_bound() + 1e-12
    assert metric.error_bound() < (1e-3 if abs(shift) < 20 else 0.1)


def test_area_of_probabilities() -> None:
    metric = AUC()
    expected = reference.roc_auc_score(BINARY, SCORES)
    assert value(metric, BINARY, SCORES) == pytest.approx(expected, abs=metric.error_bound() + 1e-12)
    assert metric.error_bound() < 1e-3
    pairs = np.stack([1 - SCORES, SCORES], axis=1)
    assert value(AUC(), BINARY, pairs) == pytest.approx(expected, abs=1e-3)


def test_area_of_few_different_scores_is_exact() -> None:
    rounded = SCORES.round(1)
    assert value(AUC(), BINARY, rounded) == pytest.approx(reference.roc_auc_score(BINARY, rounded), abs=1e-12)


def test_no_value_is_not_a_number() -> None:
    for metric in (Accuracy(), AUC(), LogLoss(), MeanSquaredError(), TopKAccuracy(2)):
        assert np.isnan(metric.result())
    assert np.isnan(value(AUC(), np.ones(3), np.array([0.1, 0.2, 0.3])))
    assert np.isnan(value(AUC(), np.array([0, 1]), np.array([0.1, np.nan])))
