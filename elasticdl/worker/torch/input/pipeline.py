"""Makes batches of shards for PyTorch: `batching/record_batches.py`, with tensors and data sets of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from elasticdl.worker.batching import record_batches
from elasticdl.worker.torch.input.collate import collate


def _own_samples(fed: Any) -> Iterator[Any] | None:
    if isinstance(fed, DataLoader):
        if fed.batch_size is not None or fed.num_workers:
            raise record_batches.refuse_loader()
        loaded: Iterator[Any] = iter(fed)
        return loaded
    if isinstance(fed, Dataset) and not isinstance(fed, IterableDataset) and not hasattr(fed, "__iter__"):
        return (fed[index] for index in range(len(fed)))
    return None


shard_batches = functools.partial(record_batches.shard_batches, collate=collate, own_samples=_own_samples)
