"""The order of shards in an epoch: shuffled, repeatable, and never stored.

A data set may have 10¹² shards, so a shuffled list of them is out of the question. Instead the i-th shard of
an epoch is computed from i, the seed and the epoch by a small cipher over exactly the numbers [0, size): a
Feistel network, which is one-to-one whatever its round function is. Every process with the same seed and epoch gets
the same order, which is what lets a restarted master go on from a cursor alone.

The numbers are written as (left, right) with left < rows and right < columns, where rows × columns is barely
above size, and the rounds add modulo those two (a generalised Feistel network). The few pairs that stand for
no number below size are stepped over by applying the network again ("cycle walking"): since rows × columns
exceeds size by less than its square root, that is almost never needed, unlike with a network over powers of
two.

This shuffles training data; it is not meant to keep anything secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import isqrt

MAX_SIZE = 2**62

# Four suffice in theory for halves that are large; small data sets have tiny halves and need more to come
# close to a uniform choice among all orders.
_ROUNDS = 8
# Odd and of 30 bits, as all multipliers here: that is one digit of a Python integer, and keeps a round cheap.
_SPREAD = 0x278DDE6D


class Permutation:
    """A one-to-one map of [0, size) onto itself, chosen by seed and epoch; the identity if not `shuffle`."""

    __slots__ = ("_columns", "_keys", "_rows", "size")

    def __init__(self, size: int, seed: int, epoch: int, *, shuffle: bool = True) -> None:
        if not 0 <= size <= MAX_SIZE:
            raise ValueError(f"The size of a permutation must lie in [0, 2**62], not {size}.")
        self.size = size
        # With three numbers in one row only the rotations could come out.
        self._rows = 2 if size == 3 else max(1, isqrt(size))
        self._columns = -(-size // self._rows)
        self._keys = _keys(seed, epoch) if shuffle and size > 1 else ()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> int:
        """The number at place i."""
        self._check(i)
        if not self._keys:
            return i
        size, rows, columns, keys = self.size, self._rows, self._columns, self._keys
        while True:
            left, right = divmod(i, columns)
            for key_1, multiply_1, key_2, multiply_2 in keys:
                mixed = (right ^ key_1) * multiply_1
                left = (left + ((mixed ^ (mixed >> 29)) * _SPREAD >> 24)) % rows
                mixed = (left ^ key_2) * multiply_2
                right = (right + ((mixed ^ (mixed >> 29)) * _SPREAD >> 24)) % columns
            i = left * columns + right
            if i < size:
                return i

    def index(self, value: int) -> int:
        """The place of a number: `self[self.index(value)] == value`."""
        self._check(value)
        if not self._keys:
            return value
        size, rows, columns = self.size, self._rows, self._columns
        while True:
            left, right = divmod(value, columns)
            for key_1, multiply_1, key_2, multiply_2 in reversed(self._keys):
                mixed = (left ^ key_2) * multiply_2
                right = (right - ((mixed ^ (mixed >> 29)) * _SPREAD >> 24)) % columns
                mixed = (right ^ key_1) * multiply_1
                left = (left - ((mixed ^ (mixed >> 29)) * _SPREAD >> 24)) % rows
            value = left * columns + right
            if value < size:
                return value

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, range(self.size))

    def _check(self, i: int) -> None:
        if not 0 <= i < self.size:
            raise IndexError(f"{i} is not in [0, {self.size}).")


def _keys(seed: int, epoch: int) -> tuple[tuple[int, int, int, int], ...]:
    """Returns the keys of each pair of rounds: a number of 31 bits and an odd multiplier of 30, twice."""
    keys = []
    for pair in range(_ROUNDS // 2):
        digest = hashlib.blake2b(
            f"{seed}/{epoch}/{pair}".encode(), digest_size=16, person=b"shard order"
        ).digest()
        a, b, c, d = (int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
        keys.append((a >> 1, b >> 2 | 1 | 1 << 29, c >> 1, d >> 2 | 1 | 1 << 29))
    return tuple(keys)
