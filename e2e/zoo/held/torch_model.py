"""A small network for digits in PyTorch, and a gate in the middle of each batch."""

from typing import Any

import torch
from torch import nn

from held.gate import Gate
from model_zoo.digits.torch_cnn import eval_metrics_fn, feed, optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]

_GATE = Gate()


def custom_model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    if not torch.is_grad_enabled():
        return nn.functional.cross_entropy(predictions, labels)
    _GATE.enter()
    found = nn.functional.cross_entropy(predictions, labels)
    _GATE.leave()
    return found
