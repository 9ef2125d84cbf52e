"""Words of a user: the right ones for a wrong one, and lists of them in one parameter."""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.pairs import BadValue, split_outside

_FEW = 20


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, and all of them if they are few."""
    words = sorted(known)
    listed = ", ".join(words[:_FEW]) + (", …" if len(words) > _FEW else "")
    return f"{did_you_mean(word, words)} Known are {listed}.".strip()


def word_list(key: str, value: str) -> tuple[str, ...]:
    """`[a,b]`, `["a","b"]`, `a;b` or `a,b`."""
    inside = value.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1]
    try:
        words = split_outside(inside, ",;")
    except BadValue as error:
        raise UserError(f"{key} is not a list of words: {error}.") from error
    return tuple(word[1:-1] if word[:1] in "\"'" and word[-1:] == word[:1] else word for word in words)
