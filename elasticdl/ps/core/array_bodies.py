"""Arrays in the body of a frame, and their description in its head.

Nothing is copied: arrays are sent from their own memory, and used where they were received. Every array starts at a
multiple of 16 bytes, so that it can be computed with there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import DTYPES, NAMES, Array, portable, raw_bytes, view
from elasticdl.wire import ps_pb2

Mask = NDArray[np.bool_]
Groups = Mapping[str, Mapping[str, Array]]

_ALIGNMENT = 16
_PADDING = bytes(_ALIGNMENT)


def lay_out(arrays: Iterable[Array]) -> list[memoryview]:
    """The parts of a body: the arrays, which must be `portable`, and what is between them."""
    parts: list[memoryview] = []
    for array in arrays:
        parts.append(raw_bytes(array))
        missing = -array.nbytes % _ALIGNMENT
        if missing:
            parts.append(memoryview(_PADDING[:missing]))
    return parts


def describe(groups: Groups, buckets: Mapping[str, int]) -> tuple[list[ps_pb2.ArrayHead], list[Array]]:
    """Returns the heads of arrays, and the arrays as they are to be sent."""
    heads, arrays = [], []
    for group, members in groups.items():
        for name, given in members.items():
            array = portable(given, what=name)
            heads.append(
                ps_pb2.ArrayHead(
                    name=name,
                    dtype=NAMES[array.dtype],
                    shape=array.shape,
                    group=group,
                    bucket=buckets.get(name, -1),
                )
            )
            arrays.append(array)
    return heads, arrays


class BodyReader:
    """A body that is read from its start to its end. The arrays are views of it. `ValueError`: it is too short."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, dtype: str, shape: Sequence[int], *, what: str) -> Array:
        known = DTYPES.get(dtype)
        if known is None:
            raise ValueError(f"{what} has the unknown dtype {dtype!r}")
        end = self._at + math.prod(shape) * known.itemsize
        if not self._at <= end <= len(self._body):
            raise ValueError(f"the message ends before {what} does")
        array = view(self._body[self._at : end], dtype, shape, what=what)
        self._at = end + -end % _ALIGNMENT
        return array

    def groups(self, heads: Iterable[ps_pb2.ArrayHead]) -> dict[str, dict[str, Array]]:
        groups: dict[str, dict[str, Array]] = {}
        for head in heads:
            members = groups.setdefault(head.group, {})
            if head.name in members:
                raise ValueError(f"{head.name} comes twice")
            members[head.name] = self.take(head.dtype, head.shape, what=head.name or "a nameless array")
        return groups


def pack(mask: Mask) -> bytes:
    return np.packbits(mask, bitorder="little").tobytes()


def unpack(bits: bytes) -> Mask:
    """Raises `ValueError` if these are not the buckets that there are."""
    if not bits:
        return np.ones(BUCKETS, np.bool_)
    if len(bits) != BUCKETS // 8:
        raise ValueError(f"{BUCKETS} buckets take {BUCKETS // 8} bytes, not {len(bits)}")
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").view(np.bool_)


def mask_of(buckets: Iterable[int]) -> Mask:
    mask = np.zeros(BUCKETS, np.bool_)
    mask[list(buckets)] = True
    return mask


def numbers(mask: Mask) -> Iterator[int]:
    return iter(np.flatnonzero(mask).tolist())
