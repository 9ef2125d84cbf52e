"""Samples into batches of tensors, whatever the framework: parts of samples are put together by NumPy.

Making a tensor of every sample and stacking those costs several times more than one array of all. Most feeds give NumPy
arrays and plain numbers; these become one array, and that one tensor. An int is int64, a tuple stays a tuple, a dict
a dict, text a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.errors import UserError

_FRAMEWORKS = ("torch.", "paddle.")


@dataclass(frozen=True, kw_only=True)
class Collation:
    """`tensor`: makes one of an array, without a copy where it can. `stack`: makes one of samples that are neither
    arrays, numbers, text nor made of such. `float_type`: what Python's floats become.
    """

    tensor: Callable[[Any], Any]
    stack: Callable[[list[Any]], Any]
    float_type: Any = np.float64

    def __call__(self, samples: list[Any], where: str = "the sample") -> Any:
        """Returns one structure of tensors with a first axis for the samples. `where` names the part, for messages."""
        first = samples[0]
        try:
            if isinstance(first, np.ndarray):
                return self.tensor(_joined(samples))
            if isinstance(first, (bool, int, np.generic)):
                return self.tensor(np.array(samples))
            if isinstance(first, float):
                return self.tensor(np.array(samples, self.float_type))
            if isinstance(first, (str, bytes)):
                return list(samples)
            if isinstance(first, Mapping):
                return {
                    key: self([sample[key] for sample in samples], f"{where}[{key!r}]")
                    for key in _same_keys(samples)
                }
            if isinstance(first, (tuple, list)):
                columns = [
                    self(list(column), f"{where}[{index}]")
                    for index, column in enumerate(zip(*samples, strict=True))
                ]
                if hasattr(first, "_fields"):
                    return type(first)(*columns)
                return tuple(columns) if isinstance(first, tuple) else columns
            return self.stack(samples)
        except (ValueError, TypeError, RuntimeError) as error:
            raise UserError(
                f"The feed's samples cannot be put into one batch: {where} is {_kinds(samples)} ({error}).",
                hint="A feed gives tensors, NumPy arrays, numbers, and tuples, lists and dicts of them, "
                "each of one shape and type in all samples.",
            ) from error


def _joined(samples: list[Any]) -> Any:
    shape = samples[0].shape
    for sample in samples:
        if sample.shape != shape:
            raise ValueError("shapes differ")
    # Joining along the first axis copies whole blocks; np.stack would make a view of every sample first.
    whole = np.concatenate(samples).reshape(len(samples), *shape) if shape else np.array(samples)
    return whole if whole.dtype.isnative else whole.astype(whole.dtype.newbyteorder("="))


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
        kind = str(value.dtype)
        for framework in _FRAMEWORKS:
            kind = kind.removeprefix(framework)
        return f"{kind}{list(value.shape)}"
    return type(value).__name__
