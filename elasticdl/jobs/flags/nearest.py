"""The right word for a wrong one, so that no error about a name leaves its reader guessing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Lower than difflib's 0.6: "lr" stays without an answer, "batchsize" and "workers" get one.
_LIKE_ENOUGH = 0.55


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one, whatever its case and its dashes; None if none is much like it."""
    plain = {_fold(name): name for name in known}
    matches = difflib.get_close_matches(_fold(word), plain, n=1, cutoff=_LIKE_ENOUGH)
    return plain[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """A sentence to put behind "unknown …", with its leading space; empty if there is nothing to propose."""
    match = nearest(word, known)
    return f" Did you mean {prefix}{match}?" if match else ""


def _fold(word: str) -> str:
    return word.lower().replace("-", "_")
