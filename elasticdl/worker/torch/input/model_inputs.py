"""The features of a batch for a PyTorch model (`batching/model_inputs.py`), and the numbers among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elasticdl.worker.batching.model_inputs import ModelInputs

__all__ = ["ModelInputs", "numbers_of"]


def numbers_of(features: Any) -> list[Any]:
    """The tensors of numbers in there, as NumPy sees them, in an order that is always the same."""
    if isinstance(features, torch.Tensor):
        if features.is_nested:
            return [torch.cat(features.unbind()).cpu().numpy()]
        return [] if features.dtype == torch.bfloat16 else [features.detach().cpu().numpy()]
    if isinstance(features, Mapping):
        features = [features[key] for key in sorted(features, key=str)]
    if isinstance(features, (tuple, list)):
        return [array for each in features for array in numbers_of(each)]
    return []
