"""Damage to valid input: more of it reaches the depths of a parser than of random bytes."""

from __future__ import annotations

import random

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)


def mutated(data: bytes, source: random.Random) -> bytes:
    """One to four changes: bytes, numbers at any place, missing, repeated and foreign pieces."""
    out = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(out) + 1)
        length = min(source.choice((1, 2, 4, 8, 16, 200)), len(out) - at)
        kind = source.randrange(5)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif kind == 1:
            size = source.choice((1, 2, 4, 8))
            number = source.choice(_NUMBERS) & (2 ** (8 * size) - 1)
            out[at : at + size] = number.to_bytes(size, source.choice(("little", "big")))
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length] * source.choice((1, 1, 50))
        else:
            out[at:at] = source.randbytes(length)
    return bytes(out)
