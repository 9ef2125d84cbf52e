"""PyTorch tensors from and to NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


def to_array(tensor: Any) -> Array:
    """The tensor's values: its own memory, if that is memory NumPy can look at."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array


def copy_into(tensor: Any, array: Array) -> None:
    tensor = tensor.detach()
    if tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16:
        # Not by a tensor of the array: those of messages are read-only, which PyTorch cannot express.
        np.copyto(tensor.numpy(), array, casting="same_kind")
    else:
        tensor.copy_(torch.from_numpy(np.array(array)))
