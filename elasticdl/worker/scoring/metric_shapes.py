"""Infers the meaning of labels and predictions for a metric from their shapes.

Definitions write labels as class numbers, as columns or one-hot, and predictions with or without an axis of
classes; guessing wrong would give a number that looks right (an (n,) minus an (n, 1) is an (n, n)). So the
rules are here in one place, and what fits none of them is a `ValueError` that names both shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def as_numpy(value: Any) -> Array:
    """The values of a tensor of PyTorch or Paddle (on any device) or TensorFlow, or of a list."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        elif str(value.dtype) == "paddle.bfloat16":
            value = value.astype("float32")
        return np.asarray(value.numpy())
    if hasattr(value, "numpy"):
        return np.asarray(value.numpy())
    return np.asarray(value)


def sample_count(values: Any) -> int:
    """Returns the number of samples of a batch: the length of the first axis of the first tensor found in it."""
    while not hasattr(values, "shape"):
        if isinstance(values, Mapping):
            values = next(iter(values.values()))
        elif isinstance(values, (list, tuple)) and values and not isinstance(values[0], (int, float, bool)):
            values = values[0]
        else:
            return len(values)
    return int(values.shape[0]) if values.shape else 1


def elementwise(labels: Array, predictions: Array) -> tuple[Array, Array]:
    """Both as float64, flat, element for element."""
    if _squeezed(labels.shape) != _squeezed(predictions.shape):
        raise _misfit(labels, predictions)
    return labels.astype(np.float64).reshape(-1), predictions.astype(np.float64).reshape(-1)


def binary_scores(labels: Array, predictions: Array, *, from_logits: bool = False) -> tuple[Array, Array]:
    """Whether each sample is positive, and its score. Of two classes, the second is the positive one."""
    if predictions.ndim >= 2 and predictions.shape[-1] == 2 and labels.shape != predictions.shape:
        lower, upper = predictions[..., 0], predictions[..., 1]
        predictions = upper.astype(np.float64) - lower if from_logits else upper
    if _squeezed(labels.shape) != _squeezed(predictions.shape):
        raise _misfit(labels, predictions)
    return labels.reshape(-1) > 0.5, predictions.astype(np.float64).reshape(-1)


def class_ids(labels: Array, predictions: Array, threshold: float) -> tuple[Array, Array]:
    """The class numbers of labels and predictions, flat."""
    axis = _class_axis(labels.shape, predictions.shape)
    if axis is not None:
        found = predictions.argmax(axis=axis)
        one_hot = labels.shape == predictions.shape
        expected = labels.argmax(axis=axis) if one_hot else labels
    elif _squeezed(labels.shape) == _squeezed(predictions.shape):
        whole = predictions.dtype.kind in "iub"
        found = predictions if whole else predictions > threshold
        expected = labels
    else:
        raise _misfit(labels, predictions)
    return expected.reshape(-1).astype(np.int64), found.reshape(-1).astype(np.int64)


def _class_axis(labels: tuple[int, ...], predictions: tuple[int, ...]) -> int | None:
    if len(predictions) < 2:
        return None
    # The last axis as Keras has it, the second as PyTorch has it where predictions are of parts of a sample.
    for axis in (len(predictions) - 1, 1):
        rest = predictions[:axis] + predictions[axis + 1 :]
        if predictions[axis] > 1 and labels in (predictions, rest, (*rest, 1)):
            return axis
    return None


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first axis is the samples' and stays, even if there is just one."""
    return shape[:1] + tuple(length for length in shape[1:] if length != 1)


def _misfit(labels: Array, predictions: Array) -> ValueError:
    return ValueError(
        f"labels {labels.dtype}{list(labels.shape)} and "
        f"predictions {predictions.dtype}{list(predictions.shape)} do not fit together"
    )
