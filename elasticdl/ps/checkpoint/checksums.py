"""The CRC-32 of two pieces put together, from those of the pieces: without reading them again.

A CRC is the remainder of the data, taken as a polynomial over bits, by a fixed one. Data behind it multiplies by a
power of x, and adds. In the usual representation the highest bit is the coefficient of x⁰.
"""

from __future__ import annotations

import functools

_DIVISOR = 0xEDB88320
_ONE = 1 << 31
_X8 = 1 << 23


def combined(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of a piece with `first` and one of so many bytes with `second` behind it."""
    return _product(first, _power(second_bytes)) ^ second


def _power(count: int) -> int:
    """x to the power of 8 for each byte."""
    found, square = _ONE, 0
    while count:
        if count & 1:
            found = _product(found, _square(square))
        count >>= 1
        square += 1
    return found


@functools.cache
def _square(times: int) -> int:
    """x⁸, squared so often."""
    return _X8 if not times else _product(_square(times - 1), _square(times - 1))


def _product(a: int, b: int) -> int:
    found = 0
    while a:
        if a & _ONE:
            found ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_DIVISOR if b & 1 else 0)
    return found
