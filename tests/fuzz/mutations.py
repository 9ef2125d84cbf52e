"""Damage to valid input: more of it reaches the depths of a parser than of random bytes."""

from __future__ import annotations

import json
import random
from typing import Any

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


_VALUES = (
    "",
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    ".nan",
    "99999999999999999999",
    "'",
    '"',
    "[]",
    "{}",
    "[1, 2]",
    "{a: {b: c}}",
    "&a [*a]",
    "*a",
    "!!python/object:os.system x",
    "!!binary x",
    "2020-01-01",
    "0x10",
    "1:30",
    "\\x00",
    "\u2028",
    "é",
    "? x",
    "-",
    "|",
    "<<: *a",
    "[" * 3000,
    "x" * 5000,
)


def mutated_text(data: bytes, source: random.Random) -> bytes:
    """One to three lines of `key: value` changed: another value or key, repeated, or indented otherwise."""
    lines = data.decode().splitlines()
    for _ in range(source.randint(1, 3)):
        if not lines:
            break
        at = source.randrange(len(lines))
        key, _, value = lines[at].partition(":")
        kind = source.randrange(5)
        if kind in (0, 1):
            lines[at] = f"{key}: {source.choice(_VALUES)}"
        elif kind == 2:
            lines[at] = f"{key[: len(key) - len(key.lstrip())]}{source.choice(_VALUES)}:{value}"
        elif kind == 3:
            lines.insert(source.randrange(len(lines)), lines[at])
        else:
            lines[at] = " " * source.choice((0, 1, 2, 8)) + lines[at].lstrip()
    return "\n".join(lines).encode()


_JSON: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    1e308,
    "",
    "x",
    "-1",
    "1e999",
    "9" * 50,
    "x" * 5000,
    "\\x00",
    [],
    {},
    [1, [2]],
    {"a": {}},
    [{"name": "x"}, {"name": "x"}],
    {"name": {}},
)


def mutated_json(data: bytes, source: random.Random) -> bytes:
    """One to three values at any depth replaced, removed, put under another key or repeated."""
    document = json.loads(data)
    for _ in range(source.randint(1, 3)):
        document = _with_one_change(document, source)
    return json.dumps(document).encode()


def _with_one_change(holder: Any, source: random.Random) -> Any:
    if not isinstance(holder, dict | list) or not holder or source.random() < 0.1:
        return source.choice(_JSON)
    if isinstance(holder, list):
        at = source.randrange(len(holder))
        changed = _with_one_change(holder[at], source)
        return [*holder[:at], changed, *holder[at + source.choice((0, 1)) :]]
    key = source.choice(sorted(holder))
    kind = source.randrange(6)
    if kind == 0:
        return {name: value for name, value in holder.items() if name != key}
    if kind == 1:
        return {**holder, key + "s": holder[key]}
    return {**holder, key: _with_one_change(holder[key], source)}
