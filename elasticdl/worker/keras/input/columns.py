"""Batches of tensors for Keras where the feed takes columns (`column_batches.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.column_batches import Make, not_fitting, structured
from elasticdl.worker.keras.input.feed_analysis import Feed


def make_tensors(feed: Feed, mode: Mode) -> Make:
    def make(fed: Any, size: int) -> tuple[Any, Any]:
        def tensor(given: Any) -> Any:
            if not isinstance(given, (np.ndarray, tf.Tensor)) or not given.shape or given.shape[0] != size:
                found = (
                    f"{given.dtype}{list(given.shape)}" if hasattr(given, "shape") else type(given).__name__
                )
                raise not_fitting(size, found)
            return tf.convert_to_tensor(given)

        if mode is not Mode.PREDICTION and not (isinstance(fed, tuple) and len(fed) == 2):
            raise not_fitting(size, f"a {type(fed).__name__}")
        return feed.split(structured(fed, tensor))

    return make
