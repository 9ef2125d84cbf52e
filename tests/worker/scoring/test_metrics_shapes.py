"""Labels and predictions are understood by their shapes, and what does not fit is named."""

from typing import Any

import numpy as np
import pytest

from elasticdl.worker.scoring.metric_base import Metric
from elasticdl.worker.scoring.metrics import (
    AUC,
    Accuracy,
    Mean,
    MeanSquaredError,
    Precision,
    TopKAccuracy,
    as_metrics,
)


def value(metric: Metric, labels: Any, predictions: Any) -> float:
    metric.update(labels, predictions)
    return metric.result()


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        ([0, 1, 1, 0], [0.1, 0.9, 0.2, 0.3]),
        ([[0], [1], [1], [0]], [0.1, 0.9, 0.2, 0.3]),
        ([0, 1, 1, 0], [[0.1], [0.9], [0.2], [0.3]]),
        ([0, 1, 1, 0], [0, 1, 0, 0]),
        ([2, 1, 1, 0], [[0, 0, 9], [0, 9, 0], [0, 0, 9], [9, 0, 0]]),
        ([[2], [1], [1], [0]], [[0, 0, 9], [0, 9, 0], [0, 0, 9], [9, 0, 0]]),
        ([[0, 1], [1, 0], [0, 1], [1, 0]], [[0.4, 0.6], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4]]),
    ],
)
def test_accuracy_by_shapes(labels: Any, predictions: Any) -> None:
    assert value(Accuracy(), np.array(labels), np.array(predictions)) == 0.75


def test_classes_on_the_second_axis() -> None:
    predictions = np.zeros((2, 3, 4, 5))
    predictions[:, 1] = 1
    labels = np.ones((2, 4, 5), np.int64)
    labels[0, 0, 0] = 2
    assert value(Accuracy(), labels, predictions) == pytest.approx(39 / 40)


def test_one_sample_in_a_batch() -> None:
    assert value(Accuracy(), np.array([2]), np.array([[0.1, 0.2, 0.7]])) == 1
    assert value(MeanSquaredError(), np.array([2.0]), np.array([[3.0]])) == 1


def test_a_column_against_a_row_is_not_a_square() -> None:
    assert value(MeanSquaredError(), np.arange(4.0), np.arange(4.0).reshape(4, 1)) == 0


@pytest.mark.parametrize("metric", [Accuracy(), MeanSquaredError(), Precision(), AUC()])
def test_misfit_is_named(metric: Metric) -> None:
    with pytest.raises(ValueError, match=r"labels int64\[3\] and predictions float64\[4\]"):
        metric.update(np.zeros(3, np.int64), np.zeros(4))


def test_logits_by_mistake() -> None:
    with pytest.raises(ValueError, match="from_logits=True"):
        AUC().update(np.array([0, 1]), np.array([-1.0, 3.0]))


def test_not_a_number_is_not_among_the_best() -> None:
    assert value(TopKAccuracy(2), np.array([0, 0]), np.array([[np.nan, 1, 2], [3, 1, 2]])) == 0.5


def test_function_by_sample_and_by_batch() -> None:
    labels = np.array([0, 1, 1])
    by_sample = Mean(lambda labels, predictions: labels == predictions)
    by_batch = Mean(lambda labels, predictions: (labels == predictions).mean())
    for metric in (by_sample, by_batch):
        metric.update(labels, np.array([0, 1, 1]))
        metric.update(labels[:1], np.array([1]))
        assert metric.result() == 0.75
    with pytest.raises(ValueError, match="2 values for a batch of 3"):
        value(Mean(lambda labels, predictions: predictions[:2]), labels, np.array([0.0, 1.0, 1.0]))


def test_metrics_of_a_definition() -> None:
    accuracy = Accuracy()
    found = as_metrics(
        {"a": {"accuracy": accuracy}, "b": {"error": lambda labels, predictions: 0.0}, "c": AUC()}
    )
    assert {name: key for name, (key, _) in found.items()} == {
        "a_accuracy": ("a",),
        "b_error": ("b",),
        "c": (),
    }
    assert found["a_accuracy"][1] is accuracy
    assert list(as_metrics([Accuracy(), TopKAccuracy(3)])) == ["accuracy", "top_3_accuracy"]
    with pytest.raises(TypeError, match="metric x is neither"):
        as_metrics({"x": 3})
