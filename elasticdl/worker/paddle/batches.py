"""Samples of a feed for Paddle into batches of arrays (`batching/collate.py`).

They stay NumPy's until they are computed with (`forward.py`): batches are made in another thread, and rows of tables
are prefetched by the ids in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from elasticdl.worker.batching.collate import Collation
from elasticdl.worker.batching.column_batches import Make, not_fitting, structured
from elasticdl.worker.batching.record_batches import Split, refuse_loader


def _stacked(samples: list[Any]) -> Any:
    if not isinstance(samples[0], paddle.Tensor):
        raise TypeError("no tensor, array or number")
    return np.stack([sample.numpy() for sample in samples])


# Paddle takes Python's floats for its default type.
collate = Collation(tensor=lambda array: array, stack=_stacked, float_type=np.float32)


def make_arrays(split: Split) -> Make:
    """Makes arrays for feeds that take columns."""

    def make(fed: Any, size: int) -> tuple[Any, Any]:
        def array(given: Any) -> Any:
            found = given.numpy() if isinstance(given, paddle.Tensor) else given
            numbers = isinstance(found, np.ndarray) and found.dtype.kind in "biuf"
            if not numbers or found.ndim == 0 or len(found) != size:
                raise not_fitting(size, repr(type(given).__name__))
            return found

        return split(structured(fed, array))

    return make


def own_samples(fed: Any) -> Iterator[Any] | None:
    """Returns the samples of a data set of Paddle's."""
    if isinstance(fed, paddle.io.DataLoader):
        if fed.batch_size is not None or fed.num_workers:
            raise refuse_loader()
        loaded: Iterator[Any] = iter(fed)
        return loaded
    if isinstance(fed, paddle.io.IterableDataset):
        return (sample for sample in fed)
    if isinstance(fed, paddle.io.Dataset):
        return (fed[index] for index in range(len(fed)))
    return None


def numbers_of(features: Any) -> list[Any]:
    """Returns the arrays of numbers in there, in an order that is always the same."""
    if isinstance(features, np.ndarray):
        return [features] if features.dtype.kind in "biuf" else []
    if isinstance(features, dict):
        features = [features[key] for key in sorted(features, key=str)]
    if isinstance(features, (tuple, list)):
        return [array for each in features for array in numbers_of(each)]
    return []
