"""The zoo's DeepFM, which begins with the same numbers in every job: two jobs can be compared."""

from __future__ import annotations

from typing import Any

import torch

from model_zoo.criteo import torch_deepfm
from model_zoo.criteo.torch_deepfm import eval_metrics_fn, feed, loss, optimizer

__all__ = ["custom_model", "eval_metrics_fn", "feed", "loss", "optimizer"]


def custom_model() -> Any:
    torch.manual_seed(0)
    return torch_deepfm.custom_model()
