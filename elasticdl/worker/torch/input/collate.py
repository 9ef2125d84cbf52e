"""Samples into batches of tensors: what `torch.utils.data.default_collate` does, at a fraction of its price.

`default_collate` makes a tensor of every sample and stacks those. Most feeds give NumPy arrays and plain
numbers; these are put together by NumPy first and become one tensor. Types come out the same: a Python
float is float64, an int is int64, a tuple stays a tuple, a dict a dict, text a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from elasticdl.errors import UserError


def collate(samples: list[Any], where: str = "the sample") -> Any:
    """One structure of tensors with a first axis for the samples. `where` names the part, for messages."""
    first = samples[0]
    try:
        if isinstance(first, np.ndarray):
            return _stack(samples)
        if isinstance(first, (bool, int, np.generic)):
            return torch.from_numpy(np.array(samples))
        if isinstance(first, float):
            return torch.from_numpy(np.array(samples, np.float64))
        if isinstance(first, (str, bytes)):
            return list(samples)
        if isinstance(first, Mapping):
            return {
                key: collate([sample[key] for sample in samples], f"{where}[{key!r}]")
                for key in _same_keys(samples)
            }
        if isinstance(first, (tuple, list)):
            columns = [
                collate(list(column), f"{where}[{index}]")
                for index, column in enumerate(zip(*samples, strict=True))
            ]
            if hasattr(first, "_fields"):
                return type(first)(*columns)
            return tuple(columns) if isinstance(first, tuple) else columns
        return default_collate(samples)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"The feed's samples cannot be put into one batch: {where} is {_kinds(samples)} ({error}).",
            hint="A feed gives tensors, NumPy arrays, numbers, and tuples, lists and dicts of them, "
            "each of one shape and type in all samples.",
        ) from error


def _stack(samples: list[Any]) -> Any:
    first = samples[0]
    shape = first.shape
    for sample in samples:
        if sample.shape != shape:
            raise ValueError("shapes differ")
    # Joining along the first axis copies whole blocks; np.stack would make a view of every sample first.
    whole = np.concatenate(samples).reshape(len(samples), *shape) if shape else np.array(samples)
    if not whole.dtype.isnative:
        whole = whole.astype(whole.dtype.newbyteorder("="))
    return torch.from_numpy(whole)


def _same_keys(samples: list[Any]) -> Any:
    keys = samples[0].keys()
    if any(sample.keys() != keys for sample in samples):
        raise ValueError("keys differ")
    return keys


def _kinds(samples: list[Any]) -> str:
    """The different kinds of values among some, shortly."""
    kinds = dict.fromkeys(describe(sample) for sample in samples)
    return ", ".join(list(kinds)[:4]) + (", ..." if len(kinds) > 4 else "")


def describe(value: Any) -> str:
    """Types and shapes, as they are named to a user: float32[32, 10]."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {describe(each)}" for key, each in value.items()) + "}"
    if (
        isinstance(value, (tuple, list))
        and len(value) <= 8
        and not all(isinstance(v, (str, bytes)) for v in value)
    ):
        return "(" + ", ".join(describe(each) for each in value) + ")"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
