"""Paddle tensors and gradients from and to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

Array = NDArray[Any]


def to_array(tensor: Any) -> Array:
    """Returns a copy of the tensor's values."""
    if tensor.dtype == paddle.bfloat16:
        tensor = tensor.astype("float32")
    array: Array = tensor.numpy()
    return array


def copy_into(tensor: Any, array: Array) -> None:
    if tensor.dtype == paddle.bfloat16:
        tensor.set_value(paddle.to_tensor(np.asarray(array, np.float32)).astype("bfloat16"))
    else:
        tensor.set_value(array if array.flags.c_contiguous else np.ascontiguousarray(array))


def gradient_of(parameter: Any) -> Any:
    """Returns the gradient of a parameter, None if it has none. `parameter.grad` would make another tensor of it."""
    return None if parameter.stop_gradient else parameter._grad_ivar()


def dense(gradient: Any) -> Array:
    if not gradient.is_selected_rows():
        return to_array(gradient)
    # That of an embedding made with sparse=True: some rows, which may come more than once.
    selected = gradient.get_selected_rows()
    values = np.array(selected.get_tensor())
    whole: Array = np.zeros((selected.height(), *values.shape[1:]), values.dtype)
    np.add.at(whole, np.asarray(selected.rows(), np.int64), values)
    return whole
