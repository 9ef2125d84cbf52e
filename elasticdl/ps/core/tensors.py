"""Arrays on the wire, and back.

Our messages carry an array as its name, its dtype's name, its shape and its bytes: little-endian, in C
order. What arrives is checked before it becomes an array, and is not copied then: the array is a read-
only view of the message's bytes, and keeps them alive. To keep or change it, copy it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps import _kernels
from elasticdl.wire import master_pb2

Array = NDArray[Any]

# By name and not by NumPy's own parser: that one also reads objects, text and dates.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
}
# To work a name out takes NumPy as long as to add up a thousand numbers.
NAMES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in DTYPES.items()}
_SWAP = sys.byteorder != "little"


def portable(array: Any, *, what: str = "the array") -> Array:
    """The array as it goes on the wire: a known dtype, little-endian, C order. Copied only if need be."""
    value = np.asarray(array, order="C")
    if value.dtype in NAMES:
        return value
    if value.dtype.name not in DTYPES:
        raise ValueError(
            f"{what} has dtype {value.dtype}, which cannot be sent; known are {', '.join(DTYPES)}"
        )
    return value.astype(DTYPES[value.dtype.name])


def raw_bytes(array: Array) -> memoryview:
    """The memory of an array that is already `portable`, as bytes and without copying."""
    return array.reshape(-1).view(np.uint8).data


def view(data: bytes | memoryview, dtype: str, shape: Sequence[int], *, what: str = "the array") -> Array:
    """The array in some bytes, without copying them. Raises `ValueError` if they are not such an array."""
    known = DTYPES.get(dtype)
    if known is None:
        raise ValueError(f"{what} has the unknown dtype {dtype!r}")
    if any(size < 0 for size in shape):
        raise ValueError(f"{what} has the impossible shape {tuple(shape)}")
    expected = math.prod(shape) * known.itemsize
    if len(data) != expected:
        raise ValueError(
            f"{what} of {dtype} and shape {tuple(shape)} should have {expected} bytes and has {len(data)}"
        )
    array = np.frombuffer(data, dtype=known) if expected else np.empty(0, dtype=known)
    if _SWAP:
        array = array.astype(known.newbyteorder("="))
    return array.reshape(tuple(shape))


def to_wire(name: str, array: Any) -> master_pb2.Tensor:
    value = portable(array, what=name)
    return master_pb2.Tensor(name=name, dtype=NAMES[value.dtype], shape=value.shape, data=value.tobytes())


def from_wire(tensor: master_pb2.Tensor) -> Array:
    """The array of a tensor, read-only. Raises `ValueError` if the tensor is malformed."""
    return view(tensor.data, tensor.dtype, tensor.shape, what=tensor.name or "a tensor without a name")


def to_wire_all(arrays: Mapping[str, Any]) -> list[master_pb2.Tensor]:
    return [to_wire(name, array) for name, array in arrays.items()]


def from_wire_all(tensors: Iterable[master_pb2.Tensor]) -> dict[str, Array]:
    """Arrays by name. Raises `ValueError` for malformed ones and for a name that comes twice."""
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        if tensor.name in arrays:
            raise ValueError(f"{tensor.name} comes twice")
        arrays[tensor.name] = from_wire(tensor)
    return arrays


def find_not_finite(arrays: Mapping[str, Array]) -> str | None:
    """The name of an array with a NaN or an infinity in it, if there is one."""
    return next((name for name, array in arrays.items() if not _is_finite(array)), None)


def find_nan(arrays: Mapping[str, Array]) -> str | None:
    """The name of an array with a NaN in it, if there is one. Infinities are allowed, as in masks."""
    return next(
        (name for name, array in arrays.items() if not _is_finite(array) and bool(np.isnan(array).any())),
        None,
    )


def _is_finite(array: Array) -> bool:
    if array.dtype.kind != "f":
        return True
    return _kernels.count_not_finite(np.ascontiguousarray(array)) == 0
