"""A shuffled order that is computed, not stored: any number of shards costs the same memory.

The numbers below the next even power of two are written as two halves, which are mixed in turn, each by a hash of the
other (a Feistel network, one-to-one whatever the hash is). A result that is no number of the order is mixed again.
"""

from __future__ import annotations

import hashlib

_ROUNDS = 6


class Permutation:
    """A one-to-one map of the numbers below `size` onto themselves; the same for the same key."""

    def __init__(self, size: int, key: str) -> None:
        self._size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        self._keys = [hashlib.blake2b(f"{key}/{i}".encode(), digest_size=16).digest() for i in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        if not 0 <= place < self._size:
            raise IndexError(f"{place} is not in [0, {self._size}).")
        number = place
        while True:
            left, right = number >> self._half, number & self._mask
            for key in self._keys:
                mixed = hashlib.blake2b(right.to_bytes(8, "little"), key=key, digest_size=8).digest()
                left, right = right, left ^ (int.from_bytes(mixed, "little") & self._mask)
            number = left << self._half | right
            if number < self._size:
                return number

    def __len__(self) -> int:
        return self._size
