"""Metrics take PyTorch's tensors as they come out of a model."""

import pytest
import torch

from elasticdl.worker.scoring.metrics import AUC, Accuracy, Mean, MeanSquaredError


def test_tensors_with_gradients_and_of_half_precision() -> None:
    predictions = torch.tensor([[0.2, 0.8], [0.6, 0.4]], requires_grad=True)
    for given in (predictions, predictions.to(torch.bfloat16), predictions.half()):
        metric = Accuracy()
        metric.update(torch.tensor([1, 1]), given)
        assert metric.result() == 0.5


def test_logits_of_a_column() -> None:
    auc, error = AUC(from_logits=True), MeanSquaredError()
    labels, logits = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([[-2.0], [3.0], [-3.0]])
    auc.update(labels, logits)
    error.update(labels, logits)
    assert auc.result() == 0.5
    assert error.result() == pytest.approx((4 + 4 + 16) / 3)


def test_functions_see_tensors() -> None:
    metric = Mean(lambda labels, predictions: torch.nn.functional.cross_entropy(predictions, labels))
    metric.update(torch.tensor([0, 1]), torch.zeros(2, 4))
    assert metric.result() == pytest.approx(torch.log(torch.tensor(4.0)).item())
