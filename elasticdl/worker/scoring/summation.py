"""Sums of floating-point numbers that do not depend on the order, nor on who added up which part.

Metrics are summed in parts, by different workers, in an order that a failure may change; plain
floating-point addition would give another last digit each time. Here a sum is a row of integers, one for
every 32 binary digits of the range of float64, so adding is exact: the sum of the parts' states *is* the
state of the whole, whatever the parts, and it is rounded once, when it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The least digit of a float64: frexp writes every one of them as M * 2**(e - 53), M an integer, e >= -1073.
_BIAS = 1126
# e <= 1024 puts the lowest digit of M at most at 2097, in word 65; M shifted by up to 31 spans three words.
_WORDS = 68
# In front of the words: how many NaN, +inf and -inf were added.
_SPECIAL = 3
# Words are summed as float64 first, which holds 2**20 numbers below 2**32 exactly.
_CHUNK = 1 << 20

WIDTH = _SPECIAL + _WORDS


class ExactSum:
    """The exact sum of float64 values; its state is an int64 array that adds up element by element."""

    def __init__(self) -> None:
        self._state = np.zeros(WIDTH, np.int64)
        # Values of small batches wait here: taking them apart costs the same for one as for a thousand.
        self._waiting: list[NDArray[np.float64]] = []
        self._waiting_size = 0

    def add(self, values: NDArray[Any]) -> None:
        flat = np.array(values, np.float64).reshape(-1)
        self._waiting.append(flat)
        self._waiting_size += flat.size
        if self._waiting_size >= _CHUNK >> 4:
            self._settle()

    def state(self) -> NDArray[np.int64]:
        self._settle()
        return self._state.copy()

    def load(self, state: NDArray[Any]) -> None:
        self._waiting, self._waiting_size = [], 0
        self._state = np.array(state, np.int64)
        _carry(self._state[_SPECIAL:])

    def over(self, divisor: int) -> float:
        """The sum divided by an integer, rounded once; 0 / 0 is NaN."""
        self._settle()
        nan, plus, minus = (int(n) for n in self._state[:_SPECIAL])
        if nan or (plus and minus) or divisor == 0:
            return float("nan")
        if plus or minus:
            return float("inf") if plus else float("-inf")
        total = 0
        for word in reversed(self._state[_SPECIAL:].tolist()):
            total = (total << 32) + word
        try:
            return total / (divisor << _BIAS)
        except OverflowError:
            return float("inf") if total > 0 else float("-inf")

    def _settle(self) -> None:
        if self._waiting:
            values = np.concatenate(self._waiting)
            self._waiting, self._waiting_size = [], 0
            for start in range(0, values.size, _CHUNK):
                self._add_chunk(values[start : start + _CHUNK])

    def _add_chunk(self, values: NDArray[np.float64]) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            odd = values[~finite]
            self._state[0] += np.count_nonzero(np.isnan(odd))
            self._state[1] += np.count_nonzero(odd == np.inf)
            self._state[2] += np.count_nonzero(odd == -np.inf)
            values = values[finite]
        fraction, exponent = np.frexp(values)
        digits = np.abs(np.ldexp(fraction, 53)).astype(np.uint64)
        offset = exponent.astype(np.int64) + (_BIAS - 53)
        word = offset >> 5
        shift = (offset & 31).astype(np.uint64)
        low = (digits & np.uint64(0xFFFFFFFF)) << shift
        high = ((digits >> np.uint64(32)) << shift) + (low >> np.uint64(32))
        sign = np.sign(fraction)
        words = self._state[_SPECIAL:]
        for step, part in enumerate(
            (low & np.uint64(0xFFFFFFFF), high & np.uint64(0xFFFFFFFF), high >> np.uint64(32))
        ):
            sums = np.bincount(word + step, weights=part.astype(np.float64) * sign, minlength=_WORDS)
            words += sums.astype(np.int64)
        _carry(words)


def _carry(words: NDArray[np.int64]) -> None:
    """Brings every word but the last to [-2**31, 2**31), so that neither samples nor shards overflow them.

    Digits around zero, because a carry of -1 out of every word of a small negative sum would be a long one.
    """
    while (over := (words[:-1] + (1 << 31)) >> 32).any():
        words[:-1] -= over << 32
        words[1:] += over
