"""Batches of tensors for PyTorch where the feed takes columns (`column_batches.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from elasticdl.worker.batching.column_batches import Make, not_fitting, structured
from elasticdl.worker.torch.input.collate import describe

Split = Callable[[Any], tuple[Any, Any]]


def make_tensors(split: Split) -> Make:
    def make(fed: Any, size: int) -> tuple[Any, Any]:
        def tensor(given: Any) -> Any:
            numbers = isinstance(given, np.ndarray) and given.dtype.kind in "biuf"
            found = torch.from_numpy(given) if numbers else given
            if not isinstance(found, torch.Tensor) or found.ndim == 0 or len(found) != size:
                raise not_fitting(size, describe(fed))
            return found

        return split(structured(fed, tensor))

    return make
